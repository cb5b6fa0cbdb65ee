import numpy as np
import torch
from numba import njit

BLOCK = 32  # variants: 8, 256


@njit
def cumsum(x, out):
    rows, cols = x.shape
    for r in range(rows):
        carry = 0.0
        for start in range(0, cols, BLOCK):
            stop = min(start + BLOCK, cols)
            part = np.float32(0.0)
            for c in range(start, stop):
                part += x[r, c]
                out[r, c] = part
            offset = np.float32(carry)
            for c in range(start, stop):
                out[r, c] += offset
            carry += part


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
