import torch
import triton
import triton.language as tl

BT = 8  # variants: 1, 32


@triton.jit
def token_loop(
    k_ptr, v_ptr, beta_ptr, a_ptr, g_ptr, w_ptr, u_ptr, H, K, V, C, KP: tl.constexpr, VP: tl.constexpr, BT: tl.constexpr
):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.program_id(2) * BT + tl.arange(0, BT)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    here = (chunk * C + row) * H + head
    w = tl.zeros((BT, KP), tl.float32)
    u = tl.zeros((BT, VP), tl.float32)
    for s in range(tl.minimum(C, tl.program_id(2) * BT + BT)):
        token = (chunk * C + s) * H + head
        a = tl.load(a_ptr + here * C + s, row < C, other=0.0) * tl.load(beta_ptr + token)
        u += a[:, None] * tl.load(v_ptr + token * V + j, j < V, other=0.0)
        w += (a * tl.exp(tl.load(g_ptr + token)))[:, None] * tl.load(k_ptr + token * K + i, i < K, other=0.0)
    tl.store(w_ptr + here[:, None] * K + i, w, (row[:, None] < C) & (i < K))
    tl.store(u_ptr + here[:, None] * V + j, u, (row[:, None] < C) & (j < V))


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    w, u = torch.empty_like(k), torch.empty_like(v)
    KP, VP = triton.next_power_of_2(K), triton.next_power_of_2(V)
    grid = (B * T // C, H, triton.cdiv(C, BT))
    token_loop[grid](k, v, beta, A, g, w, u, H, K, V, C, KP=KP, VP=VP, BT=BT, num_warps=2)
    return w, u
