import numpy as np
import torch
from numba import njit

FULL = False  # variants: True


@njit(fastmath=True)
def all_chunks(k, v, beta, A, g, w, u):
    B, T, H, C = A.shape
    K, V = k.shape[3], v.shape[3]
    both = np.empty((C, K + V), np.float32)
    out = np.empty((C, K + V), np.float32)
    for b in range(B):
        for start in range(0, T, C):
            for h in range(H):
                for i in range(C):
                    rate = beta[b, start + i, h]
                    decay = rate * np.exp(g[b, start + i, h])
                    for d in range(K):
                        both[i, d] = k[b, start + i, h, d] * decay
                    for d in range(V):
                        both[i, K + d] = v[b, start + i, h, d] * rate
                out[:] = 0.0
                for i in range(0, C, 2):
                    for j in range(0, C if FULL else i + 2, 2):
                        a00, a01 = A[b, start + i, h, j], A[b, start + i, h, j + 1]
                        a10, a11 = A[b, start + i + 1, h, j], A[b, start + i + 1, h, j + 1]
                        for d in range(K + V):
                            out[i, d] += a00 * both[j, d] + a01 * both[j + 1, d]
                            out[i + 1, d] += a10 * both[j, d] + a11 * both[j + 1, d]
                for i in range(C):
                    for d in range(K):
                        w[b, start + i, h, d] = out[i, d]
                    for d in range(V):
                        u[b, start + i, h, d] = out[i, K + d]


def kernel(k, v, beta, A, g):
    w, u = torch.empty_like(k), torch.empty_like(v)
    all_chunks(*(x.numpy() for x in (k, v, beta, A, g, w, u)))
    return w, u
