import numpy as np
import torch
from numba import njit

TOKENS = 8192  # variants: 16


@njit
def quantise(x, q, scale):
    tokens, hidden = x.shape
    limit = np.float32(448.0)
    scale[:] = np.float32(1e-10)
    for first in range(0, tokens, TOKENS):
        last = min(first + TOKENS, tokens)
        for c in range(hidden):
            for t in range(first, last):
                scale[t, c // 128] = max(scale[t, c // 128], abs(x[t, c]))
        for g in range(hidden // 128):
            for t in range(first, last):
                scale[t, g] /= limit
        for c in range(hidden):
            for t in range(first, last):
                q[t, c] = min(max(x[t, c] / scale[t, c // 128], -limit), limit)


def kernel(x):
    q = torch.empty_like(x)
    scale = torch.empty(x.shape[0], x.shape[1] // 128)
    quantise(x.numpy(), q.numpy(), scale.numpy())
    return q, scale
