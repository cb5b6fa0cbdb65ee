import torch
import triton
import triton.language as tl


@triton.jit
def one_row(k_ptr, v_ptr, beta_ptr, a_ptr, g_ptr, w_ptr, u_ptr, H, K, V, C, CP: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr):
    here = tl.program_id(0).to(tl.int64)
    chunk, head = here // H // C, here % H
    t = tl.arange(0, CP)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    token = (chunk * C + t) * H + head
    live = t < C
    a = tl.load(a_ptr + here * C + t, live, other=0.0) * tl.load(beta_ptr + token, live, other=0.0)
    v = tl.load(v_ptr + token[:, None] * V + j, live[:, None] & (j < V), other=0.0)
    tl.store(u_ptr + here * V + j, tl.sum(a[:, None] * v, 0), j < V)
    a *= tl.exp(tl.load(g_ptr + token, live, other=0.0))
    k = tl.load(k_ptr + token[:, None] * K + i, live[:, None] & (i < K), other=0.0)
    tl.store(w_ptr + here * K + i, tl.sum(a[:, None] * k, 0), i < K)


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    w, u = torch.empty_like(k), torch.empty_like(v)
    CP, KP, VP = (triton.next_power_of_2(x) for x in (C, K, V))
    one_row[(B * T * H,)](k, v, beta, A, g, w, u, H, K, V, C, CP=CP, KP=KP, VP=VP, num_warps=4)
    return w, u
