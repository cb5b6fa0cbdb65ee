import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def rms_norm(x, weight, out):
    eps = np.float32(1e-6)
    cols = np.float32(x.shape[1])
    for r in range(x.shape[0]):
        row = x[r]
        squares = row * row
        scale = np.float32(1.0) / np.sqrt(squares.sum() / cols + eps)
        out[r] = row * scale * weight


def kernel(x, weight):
    out = torch.empty_like(x)
    rms_norm(x.numpy(), weight.numpy(), out.numpy())
    return out
