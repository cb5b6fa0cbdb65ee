import torch
import triton
import triton.language as tl

ROWS = 4  # variants: 2, 16


@triton.jit
def row_tile(x_ptr, t_ptr, loss_ptr, grad_ptr, rows, vocab, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < rows
    base = row.to(tl.int64)[:, None] * vocab
    cols = tl.arange(0, COLS)[None, :]
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, vocab, COLS):
        mask = live[:, None] & (start + cols < vocab)
        x = tl.load(x_ptr + base + start + cols, mask, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new[:, None]), 1)
        top = new
    target = tl.load(t_ptr + row, live, other=0)
    hit = tl.load(x_ptr + row.to(tl.int64) * vocab + target, live, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.log(total) - (hit - top), live)
    for start in range(0, vocab, COLS):
        mask = live[:, None] & (start + cols < vocab)
        x = tl.load(x_ptr + base + start + cols, mask, other=-float("inf")).to(tl.float32)
        grad = tl.exp(x - top[:, None]) / total[:, None]
        grad -= (start + cols == target[:, None]).to(tl.float32)
        tl.store(grad_ptr + base + start + cols, grad.to(tl.bfloat16), mask)


def kernel(logits, targets):
    rows, vocab = logits.shape
    loss = torch.empty(rows, device=logits.device)
    grad = torch.empty_like(logits)
    grid = (triton.cdiv(rows, ROWS),)
    row_tile[grid](logits, targets, loss, grad, rows, vocab, ROWS=ROWS, COLS=8192 // ROWS, num_warps=8)
    return loss, grad
