import numpy as np
import torch


def kernel(x):
    lanes = np.ascontiguousarray(x.numpy().reshape(-1, 128).T)
    scale = np.maximum(np.abs(lanes).max(axis=0), np.float32(1e-10)) / np.float32(448)
    lanes *= np.float32(1) / scale
    np.clip(lanes, -448, 448, out=lanes)
    q = np.ascontiguousarray(lanes.T).reshape(x.shape)
    return torch.from_numpy(q), torch.from_numpy(scale.reshape(x.shape[0], -1))
