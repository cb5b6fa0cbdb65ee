import torch
import triton
import triton.language as tl

BV = 16  # variants: 32


@triton.jit(do_not_specialize=["c"])
def one_chunk(k_ptr, w_ptr, u_ptr, g_ptr, h_ptr, v_ptr, c, T, H, K, V, n, KP: tl.constexpr, BV: tl.constexpr):
    b, head = tl.program_id(0) // H, tl.program_id(0) % H
    i = tl.arange(0, KP)
    j = tl.program_id(1) * BV + tl.arange(0, BV)
    has_k, has_v = i < K, j < V
    token = (tl.cast(b, tl.int64) * T + c * 64 + tl.arange(0, 64)) * H + head
    here = h_ptr + ((tl.cast(b, tl.int64) * n + c) * H + head) * K * V + i[:, None] * V + j
    state = tl.load(here, has_k[:, None] & has_v, other=0.0)
    w = tl.load(w_ptr + token[:, None] * K + i, has_k, other=0.0)
    u = tl.load(u_ptr + token[:, None] * V + j, has_v, other=0.0)
    v = u - tl.dot(w, state, input_precision="ieee")
    tl.store(v_ptr + token[:, None] * V + j, v, has_v)
    if c + 1 < n:
        last = tl.load(g_ptr + (tl.cast(b, tl.int64) * T + c * 64 + 63) * H + head)
        fall = tl.exp(last - tl.load(g_ptr + token))
        k = tl.load(k_ptr + token * K + i[:, None], has_k[:, None], other=0.0) * fall
        state = state * tl.exp(last) + tl.dot(k, v, input_precision="ieee")
        tl.store(here + H * K * V, state, has_k[:, None] & has_v)


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    h = torch.empty(B, n, H, K, V, device=k.device)
    h[:, 0] = 0
    v_new = torch.empty_like(u)
    KP = max(16, triton.next_power_of_2(K))
    grid = (B * H, triton.cdiv(V, BV))
    for c in range(n):
        one_chunk[grid](k, w, u, g, h, v_new, c, T, H, K, V, n, KP=KP, BV=BV, num_warps=4)
    return h, v_new
