import math

import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False
HALF = np.float32(0.5)
ONE = np.float32(1.0)
ROOT_HALF = np.float32(math.sqrt(0.5))


@njit(fastmath=FASTMATH)
def rows(x, w, bias, out):
    m, depth = x.shape
    n = w.shape[1]
    for i in range(m):
        for j in range(n):
            out[i, j] = bias[j]
        for k in range(depth):
            a = x[i, k]
            for j in range(n):
                out[i, j] += a * w[k, j]
        for j in range(n):
            z = out[i, j]
            out[i, j] = HALF * z * (ONE + math.erf(z * ROOT_HALF))


def kernel(x, w, bias):
    out = torch.empty(x.shape[0], w.shape[1])
    rows(x.numpy(), w.numpy(), bias.numpy(), out.numpy())
    return out
