import numpy as np
import torch
from numba import njit

FASTMATH = False  # variants: True


@njit(fastmath=FASTMATH)
def triangle_rows(k, v, beta, A, g, w, u):
    B, T, H, C = A.shape
    for b in range(B):
        for t in range(T):
            start = t - t % C
            for h in range(H):
                for d in range(k.shape[3]):
                    w[b, t, h, d] = 0.0
                for d in range(v.shape[3]):
                    u[b, t, h, d] = 0.0
                for j in range(t - start + 1):
                    s = start + j
                    au = A[b, t, h, j] * beta[b, s, h]
                    aw = au * np.exp(g[b, s, h])
                    for d in range(k.shape[3]):
                        w[b, t, h, d] += aw * k[b, s, h, d]
                    for d in range(v.shape[3]):
                        u[b, t, h, d] += au * v[b, s, h, d]


def kernel(k, v, beta, A, g):
    w, u = torch.empty_like(k), torch.empty_like(v)
    triangle_rows(*(x.numpy() for x in (k, v, beta, A, g, w, u)))
    return w, u
