import torch
from numba import njit


@njit
def cumsum(flat, cols, out):
    total = 0.0
    for i in range(flat.size):
        if i % cols == 0:
            total = 0.0
        total += flat[i]
        out[i] = total


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy().ravel(), x.shape[1], out.numpy().ravel())
    return out
