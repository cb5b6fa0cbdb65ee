import numpy as np
import torch
from numba import njit

f32 = np.float32


@njit(fastmath=True)
def exp_sum(x, peak, total):
    rows, vocab = x.shape
    for r in range(rows):
        acc = f32(0.0)
        for v in range(vocab):
            t = max(x[r, v] - peak[r], f32(-80.0)) * f32(1.0 / 256.0)
            e = f32(1.0) + t * (f32(1.0) + t * (f32(0.5) + t * (f32(1 / 6) + t * (f32(1 / 24) + t * f32(1 / 120)))))
            for _ in range(8):
                e *= e
            x[r, v] = e
            acc += e
        total[r] = acc


def kernel(logits, targets):
    index = targets.unsqueeze(1)
    peak = logits.amax(dim=1, keepdim=True).float()
    e = logits.float()
    total = torch.empty_like(peak)
    exp_sum(e.numpy(), peak.view(-1).numpy(), total.view(-1).numpy())
    loss = total.log().add_(peak).sub_(logits.gather(1, index))
    grad = e.mul_(total.reciprocal_()).bfloat16()
    return loss.squeeze(1), grad.scatter_(1, index, torch.expm1(-loss).bfloat16())
