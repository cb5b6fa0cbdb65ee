import numpy as np
import torch


def kernel(x):
    a = x.numpy()
    out = np.empty_like(a)
    for i in range(a.shape[0]):
        out[i] = np.cumsum(a[i], dtype=np.float64)
    return torch.from_numpy(out)
