import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def multiply(A, scale, x, out):
    B, T, H, C = A.shape
    D = x.shape[3]
    a = np.zeros(C + 8, np.float32)
    rows = np.zeros((C + 8, D), np.float32)
    for b in range(B):
        for start in range(0, T, C):
            for h in range(H):
                for j in range(C):
                    f = scale[b, start + j, h]
                    for d in range(D):
                        rows[j, d] = x[b, start + j, h, d] * f
                for i in range(C):
                    t = start + i
                    for j in range(C):
                        a[j] = A[b, t, h, j]
                    for d in range(D):
                        out[b, t, h, d] = 0.0
                    for j in range(0, i + 1, 8):
                        a0, a1, a2, a3 = a[j], a[j + 1], a[j + 2], a[j + 3]
                        a4, a5, a6, a7 = a[j + 4], a[j + 5], a[j + 6], a[j + 7]
                        for d in range(D):
                            low = a0 * rows[j, d] + a1 * rows[j + 1, d] + a2 * rows[j + 2, d] + a3 * rows[j + 3, d]
                            high = a4 * rows[j + 4, d] + a5 * rows[j + 5, d] + a6 * rows[j + 6, d] + a7 * rows[j + 7, d]
                            out[b, t, h, d] += low + high


def kernel(k, v, beta, A, g):
    w, u = torch.empty_like(k), torch.empty_like(v)
    decay = beta.numpy() * np.exp(g.numpy())
    multiply(A.numpy(), decay, k.numpy(), w.numpy())
    multiply(A.numpy(), beta.numpy(), v.numpy(), u.numpy())
    return w, u
