import numpy as np
import torch


def kernel(x, weight):
    a = x.numpy()
    squares = np.einsum("rc,rc->r", a, a)
    scale = np.reciprocal(np.sqrt(squares / np.float32(a.shape[1]) + np.float32(1e-6)))
    out = a * scale[:, None]
    out *= weight.numpy()
    return torch.from_numpy(out)
