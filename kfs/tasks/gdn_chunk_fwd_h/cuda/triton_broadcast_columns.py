import torch
import triton
import triton.language as tl

WARPS = 4  # variants: 1


@triton.jit
def columns(k_ptr, w_ptr, u_ptr, g_ptr, h_ptr, v_ptr, T, H, K, V, n, KP: tl.constexpr):
    j = tl.program_id(0)
    b, head = tl.program_id(1) // H, tl.program_id(1) % H
    t = tl.arange(0, 64)
    i = tl.arange(0, KP)
    has_k = i < K
    state = tl.zeros((KP,), tl.float32)
    for c in range(n):
        token = (tl.cast(b, tl.int64) * T + c * 64 + t) * H + head
        tl.store(h_ptr + ((tl.cast(b, tl.int64) * n + c) * H + head) * K * V + i * V + j, state, has_k)
        w = tl.load(w_ptr + token[:, None] * K + i, has_k, other=0.0)
        v = tl.load(u_ptr + token * V + j) - tl.sum(w * state, 1)
        tl.store(v_ptr + token * V + j, v)
        g = tl.load(g_ptr + token)
        last = tl.sum(tl.where(t == 63, g, 0.0), 0)
        k = tl.load(k_ptr + token[:, None] * K + i, has_k, other=0.0)
        state = state * tl.exp(last) + tl.sum(k * (v * tl.exp(last - g))[:, None], 0)


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    h = torch.empty(B, n, H, K, V, device=k.device)
    v_new = torch.empty_like(u)
    columns[(V, B * H)](k, w, u, g, h, v_new, T, H, K, V, n, KP=triton.next_power_of_2(K), num_warps=WARPS)
    return h, v_new
