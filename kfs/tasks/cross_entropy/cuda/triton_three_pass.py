import torch
import triton
import triton.language as tl

BLOCK = 2048  # variants: 512, 8192


@triton.jit
def three_pass(x_ptr, t_ptr, loss_ptr, grad_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * vocab
    grad_ptr += row * vocab
    cols = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, vocab, BLOCK):
        x = tl.load(x_ptr + start + cols, start + cols < vocab, other=-float("inf"))
        tops = tl.maximum(tops, x.to(tl.float32))
    top = tl.max(tops, 0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        x = tl.load(x_ptr + start + cols, start + cols < vocab, other=-float("inf"))
        sums += tl.exp(x.to(tl.float32) - top)
    total = tl.sum(sums, 0)
    target = tl.load(t_ptr + row)
    hit = tl.load(x_ptr + target).to(tl.float32) - top
    log_total = tl.log(total)
    for start in range(0, vocab, BLOCK):
        mask = start + cols < vocab
        x = tl.load(x_ptr + start + cols, mask, other=0.0).to(tl.float32)
        tl.store(grad_ptr + start + cols, tl.exp(x - top - log_total).to(tl.bfloat16), mask)
    tl.debug_barrier()
    tl.store(loss_ptr + row, log_total - hit)
    tl.store(grad_ptr + target, (tl.exp(hit - log_total) - 1.0).to(tl.bfloat16))


def kernel(logits, targets):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    three_pass[(rows,)](logits, targets, loss, grad, vocab, BLOCK=BLOCK, num_warps=4)
    return loss, grad
