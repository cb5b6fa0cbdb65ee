import math

import numpy as np
import torch
from numba import njit

ONE = np.float32(1.0)
EPS = np.float32(1e-5)


@njit(fastmath=True, error_model="numpy", inline="always")
def sigmoid(z):
    return ONE / (ONE + math.exp(-z))


@njit(fastmath=True, error_model="numpy")
def norm_rows(x, weight, bias, out):
    rows, dim = x.shape
    for r in range(rows):
        total = np.float32(0.0)
        squares = np.float32(0.0)
        for c in range(dim):
            total += x[r, c]
        mean = total / np.float32(dim)
        for c in range(dim):
            squares += (x[r, c] - mean) * (x[r, c] - mean)
        scale = ONE / np.sqrt(squares / np.float32(dim) + EPS)
        for c in range(dim):
            out[r, c] = (x[r, c] - mean) * scale * weight[c] + bias[c]


@njit(fastmath=True, error_model="numpy")
def gate_sides(wide, mask):
    sides = 2 * (wide.shape[0] // 5)
    for c in range(sides):
        for p in range(wide.shape[1]):
            wide[c, p] *= mask[p] * sigmoid(wide[c + sides, p])


@njit(fastmath=True, error_model="numpy")
def norm_gate_columns(planes, gates, weight, bias):
    hidden, pixels = planes.shape
    mean = np.zeros(pixels, np.float32)
    scale = np.zeros(pixels, np.float32)
    for c in range(hidden):
        for p in range(pixels):
            mean[p] += planes[c, p]
    mean /= np.float32(hidden)
    for c in range(hidden):
        for p in range(pixels):
            scale[p] += (planes[c, p] - mean[p]) * (planes[c, p] - mean[p])
    for p in range(pixels):
        scale[p] = ONE / np.sqrt(scale[p] / np.float32(hidden) + EPS)
    for c in range(hidden):
        for p in range(pixels):
            planes[c, p] = ((planes[c, p] - mean[p]) * scale[p] * weight[c] + bias[c]) * sigmoid(gates[c, p])


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden = to_out.shape[1]
    rows = torch.empty(b * s * s, dim)
    norm_rows(x.view(-1, dim).numpy(), norm_scale.numpy(), norm_bias.numpy(), rows.numpy())
    wide = torch.mm(torch.cat([left_proj, right_proj, left_gate, right_gate, out_gate]), rows.t())
    gate_sides(wide.numpy(), mask.view(-1).numpy())
    left, right = wide[: 2 * hidden].view(2, hidden * b, s, s)
    planes = torch.bmm(left, right.transpose(1, 2)).view(hidden, -1)
    norm_gate_columns(planes.numpy(), wide[4 * hidden :].numpy(), out_norm_scale.numpy(), out_norm_bias.numpy())
    return torch.mm(planes.t(), to_out.t()).view(b, s, s, dim)
