import torch
import triton
import triton.language as tl

BLOCK = 512  # variants: 128


@triton.jit
def pack(k_ptr, v_ptr, beta_ptr, g_ptr, out_ptr, size, H, K, V, C, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    j = at % (K + V)
    t = at // (K + V) % C
    head = at // (K + V) // C % H
    chunk = at // (K + V) // C // H
    token = (chunk * C + t) * H + head
    rate = tl.load(beta_ptr + token, mask, other=0.0)
    decay = tl.exp(tl.load(g_ptr + token, mask, other=0.0))
    k = tl.load(k_ptr + token * K + j, mask & (j < K), other=0.0)
    v = tl.load(v_ptr + token * V + j - K, mask & (j >= K), other=0.0)
    tl.store(out_ptr + at, rate * tl.where(j < K, k * decay, v), mask)


def kernel(k, v, beta, A, g):
    B, T, H, K = k.shape
    V, C = v.shape[-1], A.shape[-1]
    right = torch.empty(B * T // C, H, C, K + V, device=k.device)
    size = right.numel()
    pack[(triton.cdiv(size, BLOCK),)](k, v, beta, g, right, size, H, K, V, C, BLOCK=BLOCK, num_warps=4)
    both = (A.view(-1, C, H, C).transpose(1, 2) @ right).transpose(1, 2)
    w, u = both.split((K, V), dim=-1)
    return w.reshape(k.shape).contiguous(), u.reshape(v.shape).contiguous()
