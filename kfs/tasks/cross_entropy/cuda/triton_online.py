import torch
import triton
import triton.language as tl

BLOCK = 4096  # variants: 1024, 8192, 16384


@triton.jit
def online(x_ptr, t_ptr, loss_ptr, grad_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * vocab
    grad_ptr += row * vocab
    cols = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, vocab, BLOCK):
        x = tl.load(x_ptr + start + cols, start + cols < vocab, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)
        top = new
    target = tl.load(t_ptr + row)
    tl.store(loss_ptr + row, tl.log(total) - (tl.load(x_ptr + target).to(tl.float32) - top))
    inv = 1.0 / total
    for start in range(0, vocab, BLOCK):
        x = tl.load(x_ptr + start + cols, start + cols < vocab, other=-float("inf")).to(tl.float32)
        grad = tl.exp(x - top) * inv - tl.where(start + cols == target, 1.0, 0.0)
        tl.store(grad_ptr + start + cols, grad.to(tl.bfloat16), start + cols < vocab)


def kernel(logits, targets):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    online[(rows,)](logits, targets, loss, grad, vocab, BLOCK=BLOCK, num_warps=8)
    return loss, grad
