import math

import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False


@njit(fastmath=FASTMATH)
def rms_norm(x, weight, out):
    rows, cols = x.shape
    for r in range(rows):
        squares = np.float32(0.0)
        for c in range(cols):
            squares += x[r, c] * x[r, c]
        scale = np.float32(1.0) / math.sqrt(squares / np.float32(cols) + np.float32(1e-6))
        for c in range(cols):
            out[r, c] = x[r, c] * scale * weight[c]


def kernel(x, weight):
    out = torch.empty_like(x)
    rms_norm(x.numpy(), weight.numpy(), out.numpy())
    return out
