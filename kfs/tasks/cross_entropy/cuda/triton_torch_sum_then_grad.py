import torch
import triton
import triton.language as tl

BLOCK = 1024  # variants: 256, 4096


@triton.jit
def gradient(x_ptr, t_ptr, lse_ptr, grad_ptr, vocab, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = at // vocab
    x = tl.load(x_ptr + at, at < n, other=0.0).to(tl.float32)
    lse = tl.load(lse_ptr + row, at < n, other=0.0)
    target = tl.load(t_ptr + row, at < n, other=0)
    grad = tl.exp(x - lse) - tl.where(at - row * vocab == target, 1.0, 0.0)
    tl.store(grad_ptr + at, grad.to(tl.bfloat16), at < n)


def kernel(logits, targets):
    vocab, n = logits.shape[1], logits.numel()
    lse = torch.logsumexp(logits.float(), dim=1)
    loss = lse - logits.gather(1, targets[:, None]).squeeze(1).float()
    grad = torch.empty_like(logits)
    gradient[(triton.cdiv(n, BLOCK),)](logits, targets, lse, grad, vocab, n, BLOCK=BLOCK, num_warps=4)
    return loss, grad
