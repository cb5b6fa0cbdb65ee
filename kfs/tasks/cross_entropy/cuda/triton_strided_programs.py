import torch
import triton
import triton.language as tl

PROGRAMS = 264  # variants: 132, 1056


@triton.jit
def strided(x_ptr, t_ptr, loss_ptr, grad_ptr, rows, vocab, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, PROGRAMS):
        at = row * tl.cast(vocab, tl.int64)
        target = tl.load(t_ptr + row)
        top = -float("inf")
        total = 0.0
        for start in tl.range(0, vocab, BLOCK, num_stages=3):
            x = tl.load(x_ptr + at + start + cols, start + cols < vocab, other=-float("inf")).to(tl.float32)
            new = tl.maximum(top, tl.max(x, 0))
            total = total * tl.exp2((top - new) * 1.4426950408889634)
            total += tl.sum(tl.exp2((x - new) * 1.4426950408889634), 0)
            top = new
        tl.store(loss_ptr + row, tl.log(total) - (tl.load(x_ptr + at + target).to(tl.float32) - top))
        for start in tl.range(0, vocab, BLOCK, num_stages=3):
            x = tl.load(x_ptr + at + start + cols, start + cols < vocab, other=-float("inf")).to(tl.float32)
            grad = tl.exp2((x - top) * 1.4426950408889634) / total - tl.where(start + cols == target, 1.0, 0.0)
            tl.store(grad_ptr + at + start + cols, grad.to(tl.bfloat16), start + cols < vocab)


def kernel(logits, targets):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    programs = min(PROGRAMS, rows)
    strided[(programs,)](logits, targets, loss, grad, rows, vocab, PROGRAMS=programs, BLOCK=4096, num_warps=8)
    return loss, grad
