import torch
from numba import njit

LEAF = 16  # variants: 1, 256


@njit
def cumsum(x, out):
    rows, cols = x.shape
    for r in range(rows):
        for start in range(0, cols, LEAF):
            total = x[r, start]
            out[r, start] = total
            for c in range(start + 1, min(start + LEAF, cols)):
                total += x[r, c]
                out[r, c] = total
        width = LEAF
        while width < cols:
            for start in range(width, cols, 2 * width):
                before = out[r, start - 1]
                for c in range(start, min(start + width, cols)):
                    out[r, c] += before
            width *= 2


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
