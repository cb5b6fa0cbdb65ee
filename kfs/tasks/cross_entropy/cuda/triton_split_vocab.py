import torch
import triton
import triton.language as tl

SPAN = 8192  # variants: 2048, 4096, 16384


@triton.jit
def partial(x_ptr, top_ptr, sum_ptr, vocab, parts, SPAN: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = part * SPAN + tl.arange(0, SPAN)
    x = tl.load(x_ptr + row * vocab + cols, cols < vocab, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    tl.store(top_ptr + row * parts + part, top)
    tl.store(sum_ptr + row * parts + part, tl.sum(tl.exp(x - top), 0))


@triton.jit
def finish(x_ptr, t_ptr, top_ptr, sum_ptr, loss_ptr, grad_ptr, vocab, parts, SPAN: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lanes = tl.arange(0, PARTS)
    tops = tl.load(top_ptr + row * parts + lanes, lanes < parts, other=-float("inf"))
    sums = tl.load(sum_ptr + row * parts + lanes, lanes < parts, other=0.0)
    top = tl.max(tops, 0)
    total = tl.sum(sums * tl.exp(tops - top), 0)
    target = tl.load(t_ptr + row)
    if part == 0:
        tl.store(loss_ptr + row, tl.log(total) - (tl.load(x_ptr + row * vocab + target).to(tl.float32) - top))
    cols = part * SPAN + tl.arange(0, SPAN)
    x = tl.load(x_ptr + row * vocab + cols, cols < vocab, other=-float("inf")).to(tl.float32)
    grad = tl.exp(x - top) / total - tl.where(cols == target, 1.0, 0.0)
    tl.store(grad_ptr + row * vocab + cols, grad.to(tl.bfloat16), cols < vocab)


def kernel(logits, targets):
    rows, vocab = logits.shape
    parts = triton.cdiv(vocab, SPAN)
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    tops = torch.empty(rows, parts, device=logits.device)
    sums = torch.empty_like(tops)
    grid = (rows, parts)
    partial[grid](logits, tops, sums, vocab, parts, SPAN=SPAN, num_warps=8)
    finish[grid](
        logits, targets, tops, sums, loss, grad, vocab, parts, SPAN=SPAN, PARTS=triton.next_power_of_2(parts), num_warps=8
    )
    return loss, grad
