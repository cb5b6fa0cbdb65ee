import numpy as np
import torch

BLOCK = 64  # variants: 16, 1024


def kernel(x, weight):
    a, gain = x.numpy(), weight.numpy()
    out = np.empty_like(a)
    for start in range(0, a.shape[0], BLOCK):
        source, target = a[start : start + BLOCK], out[start : start + BLOCK]
        np.square(source, out=target)
        scale = np.sqrt(target.mean(axis=1, keepdims=True) + np.float32(1e-6))
        np.divide(source, scale, out=target)
        target *= gain
    return torch.from_numpy(out)
