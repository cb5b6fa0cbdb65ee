import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def shift_add(x, y, cols, n, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    earlier = tl.load(x + at - shift, mask=(at < n) & (at % cols >= shift), other=0.0)
    tl.store(y + at, v + earlier, mask=at < n)


def kernel(x):
    cols = x.shape[1]
    n = x.numel()
    source, target, spare = x, torch.empty_like(x), torch.empty_like(x)
    shift = 1
    while shift < cols or source is x:
        shift_add[(triton.cdiv(n, BLOCK),)](source, target, cols, n, shift, BLOCK=BLOCK)
        source, target, spare = target, spare, target
        shift *= 2
    return source
