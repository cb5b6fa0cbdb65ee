import numpy as np
import torch

BLOCK = 128  # variants: 16, 512


def kernel(x):
    a = x.numpy()
    out = np.empty_like(a)
    carry = np.zeros((a.shape[0], 1), dtype=np.float64)
    for start in range(0, a.shape[1], BLOCK):
        target = out[:, start : start + BLOCK]
        np.add.accumulate(a[:, start : start + BLOCK], axis=1, out=target)
        last = carry + target[:, -1:]
        target += carry.astype(a.dtype)
        carry = last
    return torch.from_numpy(out)
