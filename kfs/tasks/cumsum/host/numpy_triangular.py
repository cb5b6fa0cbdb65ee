import numpy as np
import torch

BLOCK = 16  # variants: 64


def kernel(x):
    a = x.numpy()
    rows, cols = a.shape
    blocks = np.zeros((rows, -(-cols // BLOCK) * BLOCK), dtype=a.dtype)
    blocks[:, :cols] = a
    within = blocks.reshape(-1, BLOCK) @ np.triu(np.ones((BLOCK, BLOCK), dtype=a.dtype))
    within = within.reshape(rows, -1, BLOCK)
    before = np.zeros((rows, within.shape[1], 1), dtype=a.dtype)
    before[:, 1:, 0] = np.cumsum(within[:, :-1, -1], axis=1)
    within += before
    return torch.from_numpy(np.ascontiguousarray(within.reshape(rows, -1)[:, :cols]))
