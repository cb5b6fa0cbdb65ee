import math

import numpy as np
import torch
from numba import njit

HALF = np.float32(0.5)
ONE = np.float32(1.0)
ROOT_HALF = np.float32(math.sqrt(0.5))


@njit(fastmath=True)
def rows(x, wt, bias, out):
    for i in range(x.shape[0]):
        for j in range(wt.shape[0]):
            z = bias[j]
            for k in range(x.shape[1]):
                z += x[i, k] * wt[j, k]
            out[i, j] = HALF * z * (ONE + math.erf(z * ROOT_HALF))


def kernel(x, w, bias):
    out = torch.empty(x.shape[0], w.shape[1])
    rows(x.numpy(), np.ascontiguousarray(w.numpy().T), bias.numpy(), out.numpy())
    return out
