import numpy as np
import torch

BLOCK = 512  # variants: 64, 8192


def kernel(x):
    groups = x.numpy().reshape(-1, 128)
    q = np.empty_like(groups)
    scale = np.empty((groups.shape[0], 1), np.float32)
    for start in range(0, groups.shape[0], BLOCK):
        part, out, s = (a[start : start + BLOCK] for a in (groups, q, scale))
        np.abs(part, out=out)
        out.max(axis=1, keepdims=True, out=s)
        np.maximum(s, np.float32(1e-10), out=s)
        s /= np.float32(448)
        np.divide(part, s, out=out)
        np.maximum(out, np.float32(-448), out=out)
        np.minimum(out, np.float32(448), out=out)
    return torch.from_numpy(q.reshape(x.shape)), torch.from_numpy(scale.reshape(x.shape[0], -1))
