import math

import numpy as np
import torch
from numba import njit


@njit
def online_rows(x, targets, loss, grad):
    rows, vocab = x.shape
    for r in range(rows):
        peak = x[r, 0]
        total = np.float32(1.0)
        for v in range(1, vocab):
            value = x[r, v]
            if value > peak:
                total = total * math.exp(peak - value) + np.float32(1.0)
                peak = value
            else:
                total += math.exp(value - peak)
        loss[r] = peak + math.log(total) - x[r, targets[r]]
        for v in range(vocab):
            grad[r, v] = math.exp(x[r, v] - peak) / total
        grad[r, targets[r]] -= 1.0


def kernel(logits, targets):
    loss = torch.empty(logits.shape[0])
    x = logits.float()
    grad = torch.empty_like(x)
    online_rows(x.numpy(), targets.numpy(), loss.numpy(), grad.numpy())
    return loss, grad.bfloat16()
