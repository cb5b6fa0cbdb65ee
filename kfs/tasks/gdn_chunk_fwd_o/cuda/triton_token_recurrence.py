import torch
import triton
import triton.language as tl

BV = 16  # variants: 4, 64


@triton.jit
def recurrence(q_ptr, k_ptr, v_ptr, h_ptr, g_ptr, o_ptr, H, K, V, C, scale, KP: tl.constexpr, BV: tl.constexpr):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, KP)
    j = tl.program_id(2) * BV + tl.arange(0, BV)
    state = tl.load(h_ptr + (chunk * H + head) * K * V + i[:, None] * V + j, (i[:, None] < K) & (j < V), other=0.0)
    before = 0.0
    for t in range(C):
        token = (chunk * C + t) * H + head
        g = tl.load(g_ptr + token)
        k = tl.load(k_ptr + token * K + i, i < K, other=0.0)
        v = tl.load(v_ptr + token * V + j, j < V, other=0.0)
        state = state * tl.exp(g - before) + k[:, None] * v[None, :]
        q = tl.load(q_ptr + token * K + i, i < K, other=0.0) * scale
        tl.store(o_ptr + token * V + j, tl.sum(q[:, None] * state, 0), j < V)
        before = g


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    o = torch.empty_like(v_new)
    grid = (B * NT, H, triton.cdiv(V, BV))
    recurrence[grid](q, k, v_new, h, g, o, H, K, V, T // NT, K**-0.5, KP=triton.next_power_of_2(K), BV=BV, num_warps=2)
    return o
