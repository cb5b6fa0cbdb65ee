import numpy as np
import torch


def kernel(x, weight):
    a = x.numpy()
    scale = np.float32(1.0) / np.sqrt(np.mean(a * a, axis=-1, keepdims=True) + np.float32(1e-6))
    return torch.from_numpy(a * scale * weight.numpy())
