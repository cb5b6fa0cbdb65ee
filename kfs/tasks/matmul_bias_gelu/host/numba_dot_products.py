import math

import numpy as np
import torch
from numba import njit

FASTMATH = False  # variants: True
HALF = np.float32(0.5)
ONE = np.float32(1.0)
ROOT_HALF = np.float32(math.sqrt(0.5))


@njit(fastmath=FASTMATH)
def dots(x, w, bias, out):
    m, depth = x.shape
    for i in range(m):
        for j in range(w.shape[1]):
            acc = bias[j]
            for k in range(depth):
                acc += x[i, k] * w[k, j]
            out[i, j] = HALF * acc * (ONE + math.erf(acc * ROOT_HALF))


def kernel(x, w, bias):
    out = torch.empty(x.shape[0], w.shape[1])
    dots(x.numpy(), w.numpy(), bias.numpy(), out.numpy())
    return out
