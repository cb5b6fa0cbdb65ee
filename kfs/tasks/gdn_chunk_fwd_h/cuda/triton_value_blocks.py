import torch
import triton
import triton.language as tl

BV = 32  # variants: 16, 64


@triton.jit
def value_blocks(k_ptr, w_ptr, u_ptr, g_ptr, h_ptr, v_ptr, T, H, K, V, n, KP: tl.constexpr, BV: tl.constexpr):
    b, head = tl.program_id(0) // H, tl.program_id(0) % H
    t = tl.arange(0, 64)
    i = tl.arange(0, KP)
    j = tl.program_id(1) * BV + tl.arange(0, BV)
    has_k, has_v = i < K, j < V
    state = tl.zeros((KP, BV), tl.float32)
    for c in range(n):
        token = (tl.cast(b, tl.int64) * T + c * 64 + t) * H + head
        at_h = ((tl.cast(b, tl.int64) * n + c) * H + head) * K * V
        tl.store(h_ptr + at_h + i[:, None] * V + j, state, has_k[:, None] & has_v)
        w = tl.load(w_ptr + token[:, None] * K + i, has_k, other=0.0)
        u = tl.load(u_ptr + token[:, None] * V + j, has_v, other=0.0)
        v = u - tl.dot(w, state, input_precision="ieee")
        tl.store(v_ptr + token[:, None] * V + j, v, has_v)
        g = tl.load(g_ptr + token)
        last = tl.load(g_ptr + (tl.cast(b, tl.int64) * T + c * 64 + 63) * H + head)
        k = tl.load(k_ptr + token * K + i[:, None], has_k[:, None], other=0.0)
        v *= tl.exp(last - g)[:, None]
        state = state * tl.exp(last) + tl.dot(k, v, input_precision="ieee")


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    h = torch.empty(B, n, H, K, V, device=k.device)
    v_new = torch.empty_like(u)
    KP = max(16, triton.next_power_of_2(K))
    value_blocks[(B * H, triton.cdiv(V, BV))](k, w, u, g, h, v_new, T, H, K, V, n, KP=KP, BV=BV, num_warps=8, num_stages=2)
    return h, v_new
