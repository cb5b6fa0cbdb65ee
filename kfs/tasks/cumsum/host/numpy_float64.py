import numpy as np
import torch


def kernel(x):
    return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float64).astype(np.float32))
