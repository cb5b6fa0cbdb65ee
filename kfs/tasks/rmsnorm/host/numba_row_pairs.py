import math

import numpy as np
import torch
from numba import njit

F32 = np.float32


@njit(fastmath=True)
def rms_norm(x, weight, out):
    rows, cols = x.shape
    for first in range(0, rows, 2):
        second = min(first + 1, rows - 1)
        a, b = F32(0.0), F32(0.0)
        for c in range(cols):
            a += x[first, c] * x[first, c]
            b += x[second, c] * x[second, c]
        a = F32(1.0) / math.sqrt(a / F32(cols) + F32(1e-6))
        b = F32(1.0) / math.sqrt(b / F32(cols) + F32(1e-6))
        for c in range(cols):
            out[first, c] = x[first, c] * a * weight[c]
            out[second, c] = x[second, c] * b * weight[c]


def kernel(x, weight):
    out = torch.empty_like(x)
    rms_norm(x.numpy(), weight.numpy(), out.numpy())
    return out
