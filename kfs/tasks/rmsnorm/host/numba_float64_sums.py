import math

import torch
from numba import njit

FASTMATH = False  # variants: True


@njit(fastmath=FASTMATH)
def rms_norm(x, weight, out):
    rows, cols = x.shape
    for r in range(rows):
        squares = 0.0
        for c in range(cols):
            squares += float(x[r, c]) ** 2
        rms = math.sqrt(squares / cols + 1e-6)
        for c in range(cols):
            out[r, c] = x[r, c] / rms * weight[c]


def kernel(x, weight):
    out = torch.empty_like(x)
    rms_norm(x.numpy(), weight.numpy(), out.numpy())
    return out
