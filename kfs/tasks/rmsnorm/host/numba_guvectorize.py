import math

import torch
from numba import float32, guvectorize


@guvectorize([(float32[:], float32[:], float32[:])], "(n),(n)->(n)", nopython=True, fastmath=True)
def rms_norm_row(x, weight, out):
    squares = float32(0.0)
    for v in x:
        squares += v * v
    scale = float32(1.0) / math.sqrt(squares / float32(x.shape[0]) + float32(1e-6))
    for i in range(x.shape[0]):
        out[i] = x[i] * scale * weight[i]


def kernel(x, weight):
    return torch.from_numpy(rms_norm_row(x.numpy(), weight.numpy()))
