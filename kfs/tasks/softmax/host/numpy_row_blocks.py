import numpy as np
import torch

BLOCK = 64  # variants: 8, 1024


def kernel(x):
    a = x.numpy()
    out = np.empty_like(a)
    for start in range(0, a.shape[0], BLOCK):
        target = out[start : start + BLOCK]
        np.subtract(a[start : start + BLOCK], a[start : start + BLOCK].max(axis=1, keepdims=True), out=target)
        np.exp(target, out=target)
        target /= np.einsum("rc->r", target)[:, None]
    return torch.from_numpy(out)
