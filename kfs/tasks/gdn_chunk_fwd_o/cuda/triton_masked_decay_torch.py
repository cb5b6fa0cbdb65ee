import torch
import triton
import triton.language as tl

BLOCK = 1024  # variants: 256


@triton.jit
def decay_mask(s_ptr, g_ptr, size, H, C, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    s, t = at % C, at // C % C
    head, chunk = at // C // C % H, at // C // C // H
    keep = (at < size) & (s <= t)
    gt = tl.load(g_ptr + (chunk * C + t) * H + head, keep, other=0.0)
    gs = tl.load(g_ptr + (chunk * C + s) * H + head, keep, other=0.0)
    x = tl.load(s_ptr + at, keep, other=0.0)
    tl.store(s_ptr + at, x * tl.exp(gt - gs) * scale, at < size)


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    C = T // NT
    qc, kc, vc = (x.view(B, NT, C, H, -1).transpose(2, 3) for x in (q, k, v_new))
    scores = qc @ kc.mT
    size = scores.numel()
    decay_mask[(triton.cdiv(size, BLOCK),)](scores, g, size, H, C, K**-0.5, BLOCK=BLOCK, num_warps=4)
    rise = (g.exp() * K**-0.5).view(B, NT, C, H, 1).transpose(2, 3)
    o = torch.matmul(qc * rise, h) + scores @ vc
    return o.transpose(2, 3).reshape(B, T, H, V).contiguous()
