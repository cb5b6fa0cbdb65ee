import torch
import triton
import triton.language as tl

BT = 16  # variants: 32


@triton.jit
def scaled_a(
    k_ptr,
    v_ptr,
    beta_ptr,
    a_ptr,
    g_ptr,
    w_ptr,
    u_ptr,
    H,
    K,
    V,
    C,
    CP: tl.constexpr,
    KP: tl.constexpr,
    VP: tl.constexpr,
    BT: tl.constexpr,
):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.program_id(2) * BT + tl.arange(0, BT)
    t = tl.arange(0, CP)
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    here = (chunk * C + row) * H + head
    token = (chunk * C + t) * H + head
    ours, live = row[:, None] < C, t < C
    a = tl.load(a_ptr + here[:, None] * C + t, ours & live, other=0.0) * tl.load(beta_ptr + token, live, other=0.0)
    v = tl.load(v_ptr + token[:, None] * V + j, live[:, None] & (j < V), other=0.0)
    tl.store(u_ptr + here[:, None] * V + j, tl.dot(a, v, input_precision="ieee"), ours & (j < V))
    a *= tl.exp(tl.load(g_ptr + token, live, other=0.0))
    k = tl.load(k_ptr + token[:, None] * K + i, live[:, None] & (i < K), other=0.0)
    tl.store(w_ptr + here[:, None] * K + i, tl.dot(a, k, input_precision="ieee"), ours & (i < K))


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    w, u = torch.empty_like(k), torch.empty_like(v)
    CP, KP, VP = (max(16, triton.next_power_of_2(x)) for x in (C, K, V))
    grid = (B * T // C, H, triton.cdiv(C, BT))
    scaled_a[grid](k, v, beta, A, g, w, u, H, K, V, C, CP=CP, KP=KP, VP=VP, BT=BT, num_warps=8)
    return w, u
