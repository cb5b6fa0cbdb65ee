import torch
import triton
import triton.language as tl

BLOCK = 2048  # variants: 1024, 4096


@triton.jit
def lane_online(x_ptr, t_ptr, loss_ptr, grad_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * vocab
    grad_ptr += row * vocab
    cols = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -1e30, tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        x = tl.load(x_ptr + start + cols, start + cols < vocab, other=-float("inf")).to(tl.float32)
        new = tl.maximum(tops, x)
        sums = sums * tl.exp(tops - new) + tl.exp(x - new)
        tops = new
    top = tl.max(tops, 0)
    total = tl.sum(sums * tl.exp(tops - top), 0)
    target = tl.load(t_ptr + row)
    tl.store(loss_ptr + row, tl.log(total) - (tl.load(x_ptr + target).to(tl.float32) - top))
    last = tl.cdiv(vocab, BLOCK) - 1
    for block in range(0, last + 1):
        at = (last - block) * BLOCK + cols
        x = tl.load(x_ptr + at, at < vocab, other=-float("inf")).to(tl.float32)
        grad = tl.exp(x - top) / total
        grad = tl.where(at == target, grad - 1.0, grad)
        tl.store(grad_ptr + at, grad.to(tl.bfloat16), at < vocab)


def kernel(logits, targets):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    lane_online[(rows,)](logits, targets, loss, grad, vocab, BLOCK=BLOCK, num_warps=8)
    return loss, grad
