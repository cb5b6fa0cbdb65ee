import torch
import triton
import triton.language as tl

BV = 32  # variants: 16


@triton.jit
def value_blocks(
    q_ptr, k_ptr, v_ptr, h_ptr, g_ptr, o_ptr, H, K, V, C, scale, CP: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    block, chunk, head = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    t = tl.arange(0, CP)
    j = block * BV + tl.arange(0, BV)
    live = t < C
    token = (chunk * C + t) * H + head
    o = tl.zeros((CP, BV), tl.float32)
    scores = tl.zeros((CP, CP), tl.float32)
    for start in range(0, K, BK):
        i = start + tl.arange(0, BK)
        q = tl.load(q_ptr + token[:, None] * K + i, live[:, None] & (i < K), other=0.0)
        k = tl.load(k_ptr + token * K + i[:, None], live & (i[:, None] < K), other=0.0)
        state = tl.load(h_ptr + (chunk * H + head) * K * V + i[:, None] * V + j, (i[:, None] < K) & (j < V), other=0.0)
        o = tl.dot(q, state, o, input_precision="ieee")
        scores = tl.dot(q, k, scores, input_precision="ieee")
    g = tl.load(g_ptr + token, live, other=0.0)
    gap = tl.where((t[:, None] >= t) & live, g[:, None] - g, -float("inf"))
    v = tl.load(v_ptr + token[:, None] * V + j, live[:, None] & (j < V), other=0.0)
    o = tl.dot(scores * tl.exp(gap), v, o * tl.exp(g)[:, None], input_precision="ieee")
    tl.store(o_ptr + token[:, None] * V + j, o * scale, live[:, None] & (j < V))


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    C = T // NT
    o = torch.empty_like(v_new)
    CP = max(16, triton.next_power_of_2(C))
    grid = (triton.cdiv(V, BV), B * NT, H)
    value_blocks[grid](q, k, v_new, h, g, o, H, K, V, C, K**-0.5, CP=CP, BK=16, BV=BV, num_warps=4, num_stages=2)
    return o
