import torch
import triton
import triton.language as tl


@triton.jit
def one_row(q_ptr, k_ptr, v_ptr, h_ptr, g_ptr, o_ptr, H, K, V, C, scale, CP: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr):
    here = tl.program_id(0).to(tl.int64)
    head, row = here % H, here // H % C
    chunk = here // H // C
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    t = tl.arange(0, CP)
    token = (chunk * C + t) * H + head
    q = tl.load(q_ptr + here * K + i, i < K, other=0.0)
    g = tl.load(g_ptr + here)
    state = tl.load(h_ptr + (chunk * H + head) * K * V + i[:, None] * V + j, (i[:, None] < K) & (j < V), other=0.0)
    o = tl.sum(q[:, None] * state, 0) * tl.exp(g)
    k = tl.load(k_ptr + token[:, None] * K + i, (t[:, None] <= row) & (i < K), other=0.0)
    gap = tl.where(t <= row, g - tl.load(g_ptr + token, t <= row, other=0.0), 0.0)
    scores = tl.sum(k * q, 1) * tl.exp(gap)
    v = tl.load(v_ptr + token[:, None] * V + j, (t[:, None] <= row) & (j < V), other=0.0)
    o += tl.sum(scores[:, None] * v, 0)
    tl.store(o_ptr + here * V + j, o * scale, j < V)


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, C = v_new.shape[-1], T // h.shape[1]
    o = torch.empty_like(v_new)
    CP, KP, VP = (triton.next_power_of_2(x) for x in (C, K, V))
    one_row[(B * T * H,)](q, k, v_new, h, g, o, H, K, V, C, K**-0.5, CP=CP, KP=KP, VP=VP, num_warps=4)
    return o
