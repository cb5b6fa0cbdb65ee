import torch
import triton
import triton.language as tl

WARPS = 4  # variants: 2


@triton.jit
def query_tiles(q_ptr, k_ptr, v_ptr, h_ptr, g_ptr, o_ptr, H, K, V, C, scale, KP: tl.constexpr, VP: tl.constexpr):
    tile, chunk, head = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    t = tl.arange(0, 16)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    row = tile * 16 + t
    here = (chunk * C + row) * H + head
    q = tl.load(q_ptr + here[:, None] * K + i, (row[:, None] < C) & (i < K), other=0.0) * scale
    g = tl.load(g_ptr + here, row < C, other=0.0)
    state = tl.load(h_ptr + (chunk * H + head) * K * V + i[:, None] * V + j, (i[:, None] < K) & (j < V), other=0.0)
    o = tl.dot(q * tl.exp(g)[:, None], state, input_precision="ieee")
    for left in range(tile + 1):
        s = left * 16 + t
        token = (chunk * C + s) * H + head
        k = tl.load(k_ptr + token * K + i[:, None], (s < C) & (i[:, None] < K), other=0.0)
        v = tl.load(v_ptr + token[:, None] * V + j, (s[:, None] < C) & (j < V), other=0.0)
        gap = g[:, None] - tl.load(g_ptr + token, s < C, other=0.0)
        keep = (row[:, None] >= s) & (s < C)
        scores = tl.where(keep, tl.dot(q, k, input_precision="ieee") * tl.exp(tl.where(keep, gap, 0.0)), 0.0)
        o = tl.dot(scores, v, o, input_precision="ieee")
    tl.store(o_ptr + here[:, None] * V + j, o, (row[:, None] < C) & (j < V))


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    C = T // NT
    o = torch.empty_like(v_new)
    KP, VP = (max(16, triton.next_power_of_2(x)) for x in (K, V))
    grid = (triton.cdiv(C, 16), B * NT, H)
    query_tiles[grid](q, k, v_new, h, g, o, H, K, V, C, K**-0.5, KP=KP, VP=VP, num_warps=WARPS)
    return o
