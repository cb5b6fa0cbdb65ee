import math

import numpy as np
import torch
from numba import njit

HALF = np.float32(0.5)
ONE = np.float32(1.0)
ROOT_HALF = np.float32(math.sqrt(0.5))


@njit
def columns(x, w, bias, out):
    m, depth = x.shape
    column = np.empty(m, np.float32)
    for j in range(w.shape[1]):
        column[:] = bias[j]
        for k in range(depth):
            for i in range(m):
                column[i] += x[i, k] * w[k, j]
        for i in range(m):
            z = column[i]
            out[i, j] = HALF * z * (ONE + math.erf(z * ROOT_HALF))


def kernel(x, w, bias):
    out = torch.empty(x.shape[0], w.shape[1])
    columns(x.numpy(), w.numpy(), bias.numpy(), out.numpy())
    return out
