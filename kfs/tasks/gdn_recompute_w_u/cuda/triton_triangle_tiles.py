import torch
import triton
import triton.language as tl

BN = 16  # variants: 32


@triton.jit
def triangle_tiles(x_ptr, beta_ptr, a_ptr, g_ptr, y_ptr, H, D, C, GATED: tl.constexpr, BN: tl.constexpr):
    chunk, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    tile = tl.program_id(1)
    row = tile * 16 + tl.arange(0, 16)
    j = tl.program_id(2) * BN + tl.arange(0, BN)
    here = (chunk * C + row) * H + head
    total = tl.zeros((16, BN), tl.float32)
    for left in range(tile + 1):
        t = left * 16 + tl.arange(0, 16)
        token = (chunk * C + t) * H + head
        a = tl.load(a_ptr + here[:, None] * C + t, (row[:, None] < C) & (t < C), other=0.0)
        rate = tl.load(beta_ptr + token, t < C, other=0.0)
        if GATED:
            rate *= tl.exp(tl.load(g_ptr + token, t < C, other=0.0))
        x = tl.load(x_ptr + token[:, None] * D + j, (t[:, None] < C) & (j < D), other=0.0)
        total = tl.dot(a, x * rate[:, None], total, input_precision="ieee")
    tl.store(y_ptr + here[:, None] * D + j, total, (row[:, None] < C) & (j < D))


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    w, u = torch.empty_like(k), torch.empty_like(v)
    programs, tiles = B * T // C * H, triton.cdiv(C, 16)
    triangle_tiles[(programs, tiles, triton.cdiv(K, BN))](k, beta, A, g, w, H, K, C, GATED=True, BN=BN, num_warps=1)
    triangle_tiles[(programs, tiles, triton.cdiv(V, BN))](v, beta, A, g, u, H, V, C, GATED=False, BN=BN, num_warps=1)
    return w, u
