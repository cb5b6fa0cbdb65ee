import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def row_max(x_ptr, top_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, vocab, BLOCK):
        x = tl.load(x_ptr + row * vocab + start + cols, start + cols < vocab, other=-float("inf"))
        tops = tl.maximum(tops, x.to(tl.float32))
    tl.store(top_ptr + row, tl.max(tops, 0))


@triton.jit
def store_exp(x_ptr, top_ptr, e_ptr, total_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * vocab + cols, cols < vocab, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.load(top_ptr + row))
    tl.store(e_ptr + row * vocab + cols, e, cols < vocab)
    tl.atomic_add(total_ptr + row, tl.sum(e, 0))


@triton.jit
def scale(x_ptr, t_ptr, top_ptr, e_ptr, total_ptr, loss_ptr, grad_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(t_ptr + row)
    total = tl.load(total_ptr + row)
    grad = tl.load(e_ptr + row * vocab + cols, cols < vocab, other=0.0) / total
    grad -= tl.where(cols == target, 1.0, 0.0)
    tl.store(grad_ptr + row * vocab + cols, grad.to(tl.bfloat16), cols < vocab)
    if tl.program_id(1) == 0:
        hit = tl.load(x_ptr + row * vocab + target).to(tl.float32) - tl.load(top_ptr + row)
        tl.store(loss_ptr + row, tl.log(total) - hit)


def kernel(logits, targets):
    rows, vocab = logits.shape
    top = torch.empty(rows, device=logits.device)
    total = torch.zeros_like(top)
    loss = torch.empty_like(top)
    e = torch.empty(rows, vocab, device=logits.device)
    grad = torch.empty_like(logits)
    grid = (rows, triton.cdiv(vocab, BLOCK))
    row_max[(rows,)](logits, top, vocab, BLOCK=BLOCK)
    store_exp[grid](logits, top, e, total, vocab, BLOCK=BLOCK)
    scale[grid](logits, targets, top, e, total, loss, grad, vocab, BLOCK=BLOCK)
    return loss, grad
