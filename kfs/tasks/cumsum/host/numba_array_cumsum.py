import numpy as np
import torch
from numba import njit


@njit
def cumsum(x, out):
    for r in range(x.shape[0]):
        out[r] = np.cumsum(x[r].astype(np.float64))


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
