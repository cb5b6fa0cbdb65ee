import torch
import triton
import triton.language as tl

BV = 8  # variants: 2, 32


@triton.jit
def token_rows(k_ptr, w_ptr, u_ptr, g_ptr, h_ptr, v_ptr, T, H, K, V, n, KP: tl.constexpr, BV: tl.constexpr):
    b, head = tl.program_id(0) // H, tl.program_id(0) % H
    i = tl.arange(0, KP)
    j = tl.program_id(1) * BV + tl.arange(0, BV)
    has_k, has_v = i < K, j < V
    state = tl.zeros((KP, BV), tl.float32)
    for c in range(n):
        first = (tl.cast(b, tl.int64) * T + c * 64) * H + head
        at_h = ((tl.cast(b, tl.int64) * n + c) * H + head) * K * V
        tl.store(h_ptr + at_h + i[:, None] * V + j, state, has_k[:, None] & has_v)
        last = tl.load(g_ptr + first + 63 * H)
        grown = state * tl.exp(last)
        for t in range(64):
            token = first + t * H
            w = tl.load(w_ptr + token * K + i, has_k, other=0.0)
            k = tl.load(k_ptr + token * K + i, has_k, other=0.0)
            u = tl.load(u_ptr + token * V + j, has_v, other=0.0)
            fall = tl.exp(last - tl.load(g_ptr + token))
            v = u - tl.sum(w[:, None] * state, 0)
            tl.store(v_ptr + token * V + j, v, has_v)
            grown += k[:, None] * (v * fall)[None, :]
        state = grown


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    h = torch.empty(B, n, H, K, V, device=k.device)
    v_new = torch.empty_like(u)
    grid = (B * H, triton.cdiv(V, BV))
    token_rows[grid](k, w, u, g, h, v_new, T, H, K, V, n, KP=triton.next_power_of_2(K), BV=BV, num_warps=2)
    return h, v_new
