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
def gelu_in_place(flat):
    for i in range(len(flat)):
        flat[i] = gelu(flat[i])


def kernel(x, w, bias):
    z = torch.addmm(bias, x, w)
    gelu_in_place(z.view(-1).numpy())
    return z
