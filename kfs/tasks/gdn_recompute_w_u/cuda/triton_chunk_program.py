import torch
import triton
import triton.language as tl

WARPS = 8  # variants: 16


@triton.jit
def whole_chunk(
    k_ptr, v_ptr, beta_ptr, a_ptr, g_ptr, w_ptr, u_ptr, H, K, V, C, CP: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr
):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t = tl.arange(0, CP)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    live = t < C
    token = (chunk * C + t) * H + head
    wide, tall = live[:, None] & (i < K), live[:, None] & (j < V)
    a = tl.load(a_ptr + token[:, None] * C + t, live[:, None] & live, other=0.0)
    beta = tl.load(beta_ptr + token, live, other=0.0)
    g = tl.load(g_ptr + token, live, other=0.0)
    k = tl.load(k_ptr + token[:, None] * K + i, wide, other=0.0) * (beta * tl.exp(g))[:, None]
    tl.store(w_ptr + token[:, None] * K + i, tl.dot(a, k, input_precision="ieee"), wide)
    v = tl.load(v_ptr + token[:, None] * V + j, tall, other=0.0) * beta[:, None]
    tl.store(u_ptr + token[:, None] * V + j, tl.dot(a, v, input_precision="ieee"), tall)


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    w, u = torch.empty_like(k), torch.empty_like(v)
    CP, KP, VP = (max(16, triton.next_power_of_2(x)) for x in (C, K, V))
    whole_chunk[(B * T // C, H)](k, v, beta, A, g, w, u, H, K, V, C, CP=CP, KP=KP, VP=VP, num_warps=WARPS)
    return w, u
