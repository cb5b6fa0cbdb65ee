import torch
import triton
import triton.language as tl

BN = 32  # variants: 16


@triton.jit
def column_blocks(k_ptr, v_ptr, beta_ptr, a_ptr, g_ptr, w_ptr, u_ptr, H, K, V, C, CP: tl.constexpr, BN: tl.constexpr):
    chunk, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    t = tl.arange(0, CP)
    live = t < C
    token = (chunk * C + t) * H + head
    a = tl.load(a_ptr + token[:, None] * C + t, live[:, None] & live, other=0.0)
    rate = tl.load(beta_ptr + token, live, other=0.0)
    key_blocks = tl.cdiv(K, BN)
    if block < key_blocks:
        j = block * BN + tl.arange(0, BN)
        mask = live[:, None] & (j < K)
        rate *= tl.exp(tl.load(g_ptr + token, live, other=0.0))
        x = tl.load(k_ptr + token[:, None] * K + j, mask, other=0.0) * rate[:, None]
        tl.store(w_ptr + token[:, None] * K + j, tl.dot(a, x, input_precision="ieee"), mask)
    else:
        j = (block - key_blocks) * BN + tl.arange(0, BN)
        mask = live[:, None] & (j < V)
        x = tl.load(v_ptr + token[:, None] * V + j, mask, other=0.0) * rate[:, None]
        tl.store(u_ptr + token[:, None] * V + j, tl.dot(a, x, input_precision="ieee"), mask)


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    w, u = torch.empty_like(k), torch.empty_like(v)
    grid = (B * T // C, H, triton.cdiv(K, BN) + triton.cdiv(V, BN))
    CP = max(16, triton.next_power_of_2(C))
    column_blocks[grid](k, v, beta, A, g, w, u, H, K, V, C, CP=CP, BN=BN, num_warps=8)
    return w, u
