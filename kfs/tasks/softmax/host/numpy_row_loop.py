import numpy as np
import torch


def kernel(x):
    a = x.numpy()
    out = np.empty_like(a)
    for source, target in zip(a, out, strict=True):
        np.subtract(source, source.max(), out=target)
        np.exp(target, out=target)
        target /= target.sum()
    return torch.from_numpy(out)
