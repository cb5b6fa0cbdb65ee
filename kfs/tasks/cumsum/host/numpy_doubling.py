import numpy as np
import torch


def kernel(x):
    current = x.numpy().copy()
    spare = np.empty_like(current)
    shift = 1
    while shift < current.shape[1]:
        spare[:, :shift] = current[:, :shift]
        np.add(current[:, shift:], current[:, :-shift], out=spare[:, shift:])
        current, spare = spare, current
        shift *= 2
    return torch.from_numpy(current)
