import torch
from numba import njit


@njit
def cumsum(x, out):
    rows, cols = x.shape
    for r in range(rows):
        total = 0.0
        for c in range(0, cols - 1, 2):
            pair = x[r, c] + x[r, c + 1]
            out[r, c] = total + x[r, c]
            total += pair
            out[r, c + 1] = total
        if cols % 2:
            out[r, cols - 1] = total + x[r, cols - 1]


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
