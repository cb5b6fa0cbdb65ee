import torch
import triton
import triton.language as tl

WARPS = 16  # variants: 32


@triton.jit
def whole_row(x_ptr, t_ptr, loss_ptr, grad_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < vocab
    target = tl.load(t_ptr + row)
    x = tl.load(x_ptr + row * vocab + cols, mask, other=-float("inf")).to(tl.float32)
    x -= tl.max(x, 0)
    e = tl.exp(x)
    total = tl.sum(e, 0)
    hit = tl.sum(tl.where(cols == target, x, 0.0), 0)
    tl.store(loss_ptr + row, tl.log(total) - hit)
    grad = e / total - tl.where(cols == target, 1.0, 0.0)
    tl.store(grad_ptr + row * vocab + cols, grad.to(tl.bfloat16), mask)


def kernel(logits, targets):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    whole_row[(rows,)](logits, targets, loss, grad, vocab, BLOCK=triton.next_power_of_2(vocab), num_warps=WARPS)
    return loss, grad
