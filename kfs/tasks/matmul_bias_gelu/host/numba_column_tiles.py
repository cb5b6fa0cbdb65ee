import math

import numpy as np
import torch
from numba import njit

WIDTH = 64  # variants: 16
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
def tiles(x, w, bias, out):
    m, depth = x.shape
    n = w.shape[1]
    acc = np.empty(WIDTH, np.float32)
    for left in range(0, n, WIDTH):
        width = min(WIDTH, n - left)
        for i in range(m):
            if width == WIDTH:
                for j in range(WIDTH):
                    acc[j] = bias[left + j]
                for k in range(depth):
                    a = x[i, k]
                    for j in range(WIDTH):
                        acc[j] += a * w[k, left + j]
                for j in range(WIDTH):
                    out[i, left + j] = gelu(acc[j])
            else:
                for j in range(left, n):
                    z = bias[j]
                    for k in range(depth):
                        z += x[i, k] * w[k, j]
                    out[i, j] = gelu(z)


def kernel(x, w, bias):
    out = torch.empty(x.shape[0], w.shape[1])
    tiles(x.numpy(), w.numpy(), bias.numpy(), out.numpy())
    return out
