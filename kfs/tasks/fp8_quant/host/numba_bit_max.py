import numpy as np
import torch
from numba import njit


@njit
def absmax_bits(bits, peaks):
    mask = np.int32(0x7FFFFFFF)
    for g in range(bits.shape[0]):
        peak = np.int32(0)
        for c in range(128):
            peak = max(peak, bits[g, c] & mask)
        peaks[g] = peak


@njit(fastmath=True)
def divide(groups, q, scale):
    limit = np.float32(448.0)
    for g in range(groups.shape[0]):
        scale[g] = max(scale[g], np.float32(1e-10)) / limit
        for c in range(128):
            q[g, c] = min(max(groups[g, c] / scale[g], -limit), limit)


def kernel(x):
    q = torch.empty_like(x)
    scale = torch.empty(x.shape[0], x.shape[1] // 128)
    groups, peaks = x.numpy().reshape(-1, 128), scale.numpy().reshape(-1)
    absmax_bits(groups.view(np.int32), peaks.view(np.int32))
    divide(groups, q.numpy().reshape(-1, 128), peaks)
    return q, scale
