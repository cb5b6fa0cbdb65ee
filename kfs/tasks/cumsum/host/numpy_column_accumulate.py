import numpy as np
import torch


def kernel(x):
    columns = np.ascontiguousarray(x.numpy().T, dtype=np.float64)
    np.add.accumulate(columns, axis=0, out=columns)
    return torch.from_numpy(np.ascontiguousarray(columns.T, dtype=np.float32))
