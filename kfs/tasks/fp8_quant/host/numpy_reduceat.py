import numpy as np
import torch


def kernel(x):
    flat = x.numpy().ravel()
    absmax = np.maximum.reduceat(np.abs(flat), np.arange(0, flat.size, 128))
    scale = np.maximum(absmax, np.float32(1e-10)) / np.float32(448)
    q = flat / np.repeat(scale, 128)
    np.clip(q, -448, 448, out=q)
    return torch.from_numpy(q.reshape(x.shape)), torch.from_numpy(scale.reshape(x.shape[0], -1))
