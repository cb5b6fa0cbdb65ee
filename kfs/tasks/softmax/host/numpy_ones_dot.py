import numpy as np
import torch


def kernel(x):
    a = x.numpy()
    e = np.exp(a - np.maximum.reduce(a, axis=1)[:, None])
    total = e.dot(np.ones(a.shape[1], dtype=a.dtype))
    return torch.from_numpy(e / total[:, None])
