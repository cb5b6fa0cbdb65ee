import numpy as np
import torch


def kernel(x):
    values = x.numpy()
    tokens, hidden = values.shape
    q = np.empty_like(values)
    scale = np.empty((tokens, hidden // 128), np.float32)
    for g in range(hidden // 128):
        part = values[:, g * 128 : (g + 1) * 128]
        s = np.maximum(np.abs(part).max(axis=1), np.float32(1e-10)) / np.float32(448)
        q[:, g * 128 : (g + 1) * 128] = np.clip(part / s[:, None], -448, 448)
        scale[:, g] = s
    return torch.from_numpy(q), torch.from_numpy(scale)
