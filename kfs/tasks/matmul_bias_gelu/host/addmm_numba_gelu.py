import math

import numpy as np
import torch
from numba import njit

ERROR_MODEL = "numpy"  # variants: "python"
HALF = np.float32(0.5)
ONE = np.float32(1.0)
FOUR = np.float32(4.0)
ROOT_HALF = np.float32(math.sqrt(0.5))
P = tuple(
    np.float32(c)
    for c in (
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    )
)
Q = tuple(
    np.float32(c)
    for c in (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
)


@njit(fastmath=True, error_model=ERROR_MODEL, inline="always")
def gelu(z):
    t = min(max(z * ROOT_HALF, -FOUR), FOUR)
    s = t * t
    p = (((((P[0] * s + P[1]) * s + P[2]) * s + P[3]) * s + P[4]) * s + P[5]) * s + P[6]
    q = (((Q[0] * s + Q[1]) * s + Q[2]) * s + Q[3]) * s + Q[4]
    return HALF * z * (ONE + t * p / q)


@njit(fastmath=True, error_model=ERROR_MODEL)
def gelu_in_place(flat):
    for i in range(flat.size):
        flat[i] = gelu(flat[i])


def kernel(x, w, bias):
    z = torch.addmm(bias, x, w)
    gelu_in_place(z.view(-1).numpy())
    return z
