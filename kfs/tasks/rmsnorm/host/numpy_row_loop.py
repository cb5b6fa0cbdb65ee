import numpy as np
import torch


def kernel(x, weight):
    a, gain = x.numpy(), weight.numpy()
    out = np.empty_like(a)
    for i, row in enumerate(a):
        scale = 1.0 / np.sqrt(np.dot(row, row) / row.size + 1e-6)
        np.multiply(row, np.float32(scale), out=out[i])
    out *= gain
    return torch.from_numpy(out)
