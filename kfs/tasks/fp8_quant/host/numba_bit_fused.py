import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False


@njit(fastmath=FASTMATH)
def quantise(groups, bits, q, scale):
    limit = np.float32(448.0)
    peak_bits = np.empty(1, np.int32)
    peak_value = peak_bits.view(np.float32)
    for g in range(groups.shape[0]):
        top = np.int32(0)
        for c in range(128):
            top = max(top, bits[g, c] & np.int32(0x7FFFFFFF))
        peak_bits[0] = top
        peak = max(peak_value[0], np.float32(1e-10))
        scale[g] = peak / limit
        inverse = limit / peak
        for c in range(128):
            q[g, c] = min(max(groups[g, c] * inverse, -limit), limit)


def kernel(x):
    q = torch.empty_like(x)
    scale = torch.empty(x.shape[0], x.shape[1] // 128)
    groups = x.numpy().reshape(-1, 128)
    quantise(groups, groups.view(np.int32), q.numpy().reshape(-1, 128), scale.numpy().reshape(-1))
    return q, scale
