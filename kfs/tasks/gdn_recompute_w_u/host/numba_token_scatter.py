import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False


@njit(fastmath=FASTMATH)
def scatter(k, v, beta, A, g, w, u):
    B, T, H, C = A.shape
    for b in range(B):
        for h in range(H):
            for s in range(T):
                rate = beta[b, s, h]
                decay = rate * np.exp(g[b, s, h])
                for t in range(s, s - s % C + C):
                    a = A[b, t, h, s % C]
                    for d in range(k.shape[3]):
                        w[b, t, h, d] += a * decay * k[b, s, h, d]
                    for d in range(v.shape[3]):
                        u[b, t, h, d] += a * rate * v[b, s, h, d]


def kernel(k, v, beta, A, g):
    w, u = torch.zeros_like(k), torch.zeros_like(v)
    scatter(*(x.numpy() for x in (k, v, beta, A, g, w, u)))
    return w, u
