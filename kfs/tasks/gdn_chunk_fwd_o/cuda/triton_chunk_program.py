import torch
import triton
import triton.language as tl

WARPS = 8  # variants: 16


@triton.jit
def whole_chunk(
    q_ptr, k_ptr, v_ptr, h_ptr, g_ptr, o_ptr, H, K, V, C, scale, CP: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr
):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t = tl.arange(0, CP)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    live = t < C
    token = (chunk * C + t) * H + head
    g = tl.load(g_ptr + token, live, other=0.0)
    q = tl.load(q_ptr + token[:, None] * K + i, live[:, None] & (i < K), other=0.0)
    state = tl.load(h_ptr + (chunk * H + head) * K * V + i[:, None] * V + j, (i[:, None] < K) & (j < V), other=0.0)
    o = tl.dot(q, state, input_precision="ieee") * tl.exp(g)[:, None]
    k = tl.load(k_ptr + token * K + i[:, None], live & (i[:, None] < K), other=0.0)
    causal = (t[:, None] >= t) & live
    decay = tl.exp(tl.where(causal, g[:, None] - g, 0.0))
    scores = tl.where(causal, tl.dot(q, k, input_precision="ieee") * decay, 0.0)
    v = tl.load(v_ptr + token[:, None] * V + j, live[:, None] & (j < V), other=0.0)
    o += tl.dot(scores, v, input_precision="ieee")
    tl.store(o_ptr + token[:, None] * V + j, o * scale, live[:, None] & (j < V))


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    C = T // NT
    o = torch.empty_like(v_new)
    CP, KP, VP = (max(16, triton.next_power_of_2(x)) for x in (C, K, V))
    whole_chunk[(B * NT, H)](q, k, v_new, h, g, o, H, K, V, C, K**-0.5, CP=CP, KP=KP, VP=VP, num_warps=WARPS)
    return o
