import math

import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False
ONE = np.float32(1.0)
EPS = np.float32(1e-5)


@njit(fastmath=FASTMATH, error_model="numpy")
def norm(row, weight, bias, out):
    mean = np.float32(0.0)
    square = np.float32(0.0)
    for c in range(row.size):
        mean += row[c]
    mean /= np.float32(row.size)
    for c in range(row.size):
        square += (row[c] - mean) * (row[c] - mean)
    scale = ONE / np.sqrt(square / np.float32(row.size) + EPS)
    for c in range(row.size):
        out[c] = (row[c] - mean) * scale * weight[c] + bias[c]


@njit(fastmath=FASTMATH, error_model="numpy")
def whole(x, mask, nw, nb, weights, ow, ob, to_out, wide, out):
    batch, s, _, dim = x.shape
    hidden = to_out.shape[0]
    row = np.empty(dim, np.float32)
    for b in range(batch):
        for i in range(s):
            for j in range(s):
                norm(x[b, i, j], nw, nb, row)
                for c in range(dim):
                    for h in range(5 * hidden):
                        wide[b, i, j, h] += row[c] * weights[c, h]
                for h in range(2 * hidden):
                    wide[b, i, j, h] *= mask[b, i, j] / (ONE + math.exp(-wide[b, i, j, h + 2 * hidden]))
        acc = np.empty(hidden, np.float32)
        for i in range(s):
            for j in range(s):
                acc[:] = np.float32(0.0)
                for k in range(s):
                    for h in range(hidden):
                        acc[h] += wide[b, i, k, h] * wide[b, j, k, h + hidden]
                norm(acc, ow, ob, acc)
                for h in range(hidden):
                    value = acc[h] / (ONE + math.exp(-wide[b, i, j, h + 4 * hidden]))
                    for c in range(dim):
                        out[b, i, j, c] += value * to_out[h, c]


def kernel(x, mask, norm_scale, norm_bias, *rest):
    weights = torch.cat(rest[:5]).t().contiguous()
    out_norm_scale, out_norm_bias, to_out = rest[5:]
    wide = torch.zeros(*mask.shape, weights.shape[1])
    out = torch.zeros_like(x)
    args = (x, mask, norm_scale, norm_bias, weights, out_norm_scale, out_norm_bias, to_out.t().contiguous(), wide, out)
    whole(*(t.numpy() for t in args))
    return out
