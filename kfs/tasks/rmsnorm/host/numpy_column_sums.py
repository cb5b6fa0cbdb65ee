import numpy as np
import torch


def kernel(x, weight):
    columns = np.ascontiguousarray(x.numpy().T)
    scale = np.float32(1.0) / np.sqrt(np.square(columns).mean(axis=0) + np.float32(1e-6))
    columns *= scale
    columns *= weight.numpy()[:, None]
    return torch.from_numpy(np.ascontiguousarray(columns.T))
