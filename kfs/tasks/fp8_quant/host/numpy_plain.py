import numpy as np
import torch


def kernel(x):
    groups = x.numpy().reshape(x.shape[0], -1, 128)
    scale = np.maximum(np.abs(groups).max(axis=-1), np.float32(1e-10)) / np.float32(448)
    q = np.clip(groups / scale[..., None], -448, 448)
    return torch.from_numpy(q.reshape(x.shape)), torch.from_numpy(scale)
