import numpy as np
import torch


def kernel(x, weight):
    a = x.numpy()
    mean_square = np.vecdot(a, a) / np.float32(a.shape[1])
    out = np.divide(a, np.sqrt(mean_square + np.float32(1e-6))[:, None])
    return torch.from_numpy(np.multiply(out, weight.numpy(), out=out))
