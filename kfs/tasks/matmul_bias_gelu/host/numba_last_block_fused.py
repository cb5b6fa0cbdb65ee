import math

import numpy as np
import torch
from numba import njit

ZERO = np.float32(0.0)
HALF = np.float32(0.5)
ONE = np.float32(1.0)
FIVE = np.float32(5.0)
ROOT_HALF = np.float32(math.sqrt(0.5))
A = tuple(np.float32(c) for c in (0.0705230784, 0.0422820123, 0.0092705272, 0.0001520143, 0.0002765672, 0.0000430638))


@njit(fastmath=True, error_model="numpy", inline="always")
def gelu(z):
    a = min(abs(z) * ROOT_HALF, FIVE)
    s = ((((A[5] * a + A[4]) * a + A[3]) * a + A[2]) * a + A[1]) * a + A[0]
    s = s * a + ONE
    s = s * s
    s = s * s
    s = s * s
    return max(z, ZERO) - HALF * abs(z) / (s * s)


@njit(fastmath=True, error_model="numpy")
def rows(x, w, bias, out):
    m, depth = x.shape
    n = w.shape[1]
    for i in range(m):
        row = out[i]
        for j in range(n):
            row[j] = bias[j]
        k = 0
        while k + 4 < depth:
            a, b, c, d = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
            wa, wb, wc, wd = w[k], w[k + 1], w[k + 2], w[k + 3]
            for j in range(n):
                row[j] += (a * wa[j] + b * wb[j]) + (c * wc[j] + d * wd[j])
            k += 4
        while k + 1 < depth:
            a = x[i, k]
            wa = w[k]
            for j in range(n):
                row[j] += a * wa[j]
            k += 1
        a = x[i, k]
        wa = w[k]
        for j in range(n):
            row[j] = gelu(row[j] + a * wa[j])


def kernel(x, w, bias):
    out = torch.empty(x.shape[0], w.shape[1])
    rows(x.numpy(), w.numpy(), bias.numpy(), out.numpy())
    return out
