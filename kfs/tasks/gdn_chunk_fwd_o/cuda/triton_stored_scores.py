import torch
import triton
import triton.language as tl

BV = 32  # variants: 16, 64


@triton.jit
def score(q_ptr, k_ptr, g_ptr, s_ptr, H, K, C, scale, CP: tl.constexpr, KP: tl.constexpr):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t = tl.arange(0, CP)
    i = tl.arange(0, KP)
    live = t < C
    token = (chunk * C + t) * H + head
    q = tl.load(q_ptr + token[:, None] * K + i, live[:, None] & (i < K), other=0.0)
    k = tl.load(k_ptr + token * K + i[:, None], live & (i[:, None] < K), other=0.0)
    g = tl.load(g_ptr + token, live, other=0.0)
    gap = tl.where(t[:, None] >= t, g[:, None] - g, -float("inf"))
    s = tl.dot(q, k, input_precision="ieee") * tl.exp(gap) * scale
    tl.store(s_ptr + (chunk * H + head) * C * C + t[:, None] * C + t, s, live[:, None] & live)


@triton.jit
def combine(q_ptr, s_ptr, v_ptr, h_ptr, g_ptr, o_ptr, H, K, V, C, scale, CP: tl.constexpr, KP: tl.constexpr, BV: tl.constexpr):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t = tl.arange(0, CP)
    i = tl.arange(0, KP)
    j = tl.program_id(2) * BV + tl.arange(0, BV)
    live = t < C
    token = (chunk * C + t) * H + head
    at = chunk * H + head
    g = tl.load(g_ptr + token, live, other=0.0)
    q = tl.load(q_ptr + token[:, None] * K + i, live[:, None] & (i < K), other=0.0) * (tl.exp(g) * scale)[:, None]
    state = tl.load(h_ptr + at * K * V + i[:, None] * V + j, (i[:, None] < K) & (j < V), other=0.0)
    s = tl.load(s_ptr + at * C * C + t[:, None] * C + t, live[:, None] & live, other=0.0)
    v = tl.load(v_ptr + token[:, None] * V + j, live[:, None] & (j < V), other=0.0)
    o = tl.dot(q, state, input_precision="ieee") + tl.dot(s, v, input_precision="ieee")
    tl.store(o_ptr + token[:, None] * V + j, o, live[:, None] & (j < V))


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    C = T // NT
    o = torch.empty_like(v_new)
    s = torch.empty(B, NT, H, C, C, device=q.device)
    CP, KP = (max(16, triton.next_power_of_2(x)) for x in (C, K))
    score[(B * NT, H)](q, k, g, s, H, K, C, K**-0.5, CP=CP, KP=KP, num_warps=8)
    combine[(B * NT, H, triton.cdiv(V, BV))](q, s, v_new, h, g, o, H, K, V, C, K**-0.5, CP=CP, KP=KP, BV=BV, num_warps=8)
    return o
