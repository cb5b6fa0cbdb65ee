import torch
import triton
import triton.language as tl

WARPS = 8  # variants: 16


@triton.jit
def transposed(k_ptr, w_ptr, u_ptr, g_ptr, h_ptr, v_ptr, T, H, K, V, n, KP: tl.constexpr, VP: tl.constexpr):
    b, head = tl.program_id(0) // H, tl.program_id(0) % H
    t = tl.arange(0, 64)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    has_k, has_v = i < K, j < V
    state = tl.zeros((VP, KP), tl.float32)
    for c in range(n):
        token = (tl.cast(b, tl.int64) * T + c * 64 + t) * H + head
        at_h = ((tl.cast(b, tl.int64) * n + c) * H + head) * K * V
        tl.store(h_ptr + at_h + i * V + j[:, None], state, has_v[:, None] & has_k)
        g = tl.load(g_ptr + token)
        last = tl.sum(tl.where(t == 63, g, 0.0), 0)
        w = tl.load(w_ptr + token * K + i[:, None], has_k[:, None], other=0.0)
        u = tl.load(u_ptr + token * V + j[:, None], has_v[:, None], other=0.0)
        v = u - tl.dot(state, w, input_precision="ieee")
        tl.store(v_ptr + token * V + j[:, None], v, has_v[:, None])
        k = tl.load(k_ptr + token[:, None] * K + i, has_k, other=0.0) * tl.exp(last - g)[:, None]
        state = tl.dot(v, k, state * tl.exp(last), input_precision="ieee")


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    h = torch.empty(B, n, H, K, V, device=k.device)
    v_new = torch.empty_like(u)
    KP, VP = (max(16, triton.next_power_of_2(x)) for x in (K, V))
    transposed[(B * H,)](k, w, u, g, h, v_new, T, H, K, V, n, KP=KP, VP=VP, num_warps=WARPS, num_stages=1)
    return h, v_new
