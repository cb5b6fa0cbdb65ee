import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def row_scales(x, scales):
    rows, cols = x.shape
    for r in range(rows):
        squares = np.float32(0.0)
        for c in range(cols):
            squares += x[r, c] * x[r, c]
        scales[r] = np.float32(1.0) / np.sqrt(squares / np.float32(cols) + np.float32(1e-6))


def kernel(x, weight):
    scales = torch.empty(x.shape[0], 1, dtype=x.dtype)
    row_scales(x.numpy(), scales.numpy()[:, 0])
    return torch.mul(x, scales).mul_(weight)
