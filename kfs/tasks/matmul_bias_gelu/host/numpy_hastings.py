import numpy as np
import torch

A = (0.0705230784, 0.0422820123, 0.0092705272, 0.0001520143, 0.0002765672, 0.0000430638)
ROWS = 100000  # variants: 16


def gelu(z):
    size = np.abs(z)
    a = size * np.float32(np.sqrt(0.5))
    s = a * np.float32(A[5])
    for c in A[4::-1]:
        s += np.float32(c)
        s *= a
    s += np.float32(1)
    for _ in range(4):
        np.multiply(s, s, out=s)
    size *= np.float32(0.5)
    size /= s
    np.maximum(z, np.float32(0), out=z)
    z -= size
    return z


def kernel(x, w, bias):
    x, w, bias = x.numpy(), w.numpy(), bias.numpy()
    out = np.empty((x.shape[0], w.shape[1]), np.float32)
    for start in range(0, len(x), ROWS):
        block = out[start : start + ROWS]
        np.matmul(x[start : start + ROWS], w, out=block)
        block += bias
        gelu(block)
    return torch.from_numpy(out)
