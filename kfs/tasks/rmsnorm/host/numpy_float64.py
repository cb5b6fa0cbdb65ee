import numpy as np
import torch


def kernel(x, weight):
    a = x.numpy().astype(np.float64)
    rms = np.sqrt(np.mean(a**2, axis=-1, keepdims=True) + 1e-6)
    return torch.from_numpy((a / rms * weight.numpy()).astype(np.float32))
