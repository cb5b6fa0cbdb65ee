import numpy as np
import torch

OPTIMIZE = False  # variants: True


def norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * weight + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def kernel(*inputs):
    (
        x,
        mask,
        norm_scale,
        norm_bias,
        left_proj,
        right_proj,
        left_gate,
        right_gate,
        out_gate,
        out_norm_scale,
        out_norm_bias,
        to_out,
    ) = (t.numpy() for t in inputs)
    x = norm(x, norm_scale, norm_bias)
    left = (x @ left_proj.T) * mask[..., None] * sigmoid(x @ left_gate.T)
    right = (x @ right_proj.T) * mask[..., None] * sigmoid(x @ right_gate.T)
    out = np.einsum("bikd,bjkd->bijd", left, right, optimize=OPTIMIZE)
    out = norm(out, out_norm_scale, out_norm_bias) * sigmoid(x @ out_gate.T)
    return torch.from_numpy(np.ascontiguousarray(out @ to_out.T))
