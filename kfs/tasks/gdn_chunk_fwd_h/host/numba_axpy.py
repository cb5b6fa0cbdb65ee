import numpy as np
import torch
from numba import njit

CHUNK = 64
FASTMATH = False  # variants: True


@njit(fastmath=FASTMATH)
def recurrence(k, w, u, g, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    for b in range(B):
        for t in range(T):
            c = t // CHUNK
            last = (c + 1) * CHUNK - 1
            for i in range(H):
                for e in range(V):
                    v_new[b, t, i, e] = u[b, t, i, e]
                for d in range(K):
                    a = w[b, t, i, d]
                    for e in range(V):
                        v_new[b, t, i, e] -= a * h[b, c, i, d, e]
                if last + 1 < T:
                    keep = np.exp(g[b, last, i])
                    fall = np.exp(g[b, last, i] - g[b, t, i])
                    for d in range(K):
                        if t % CHUNK == 0:
                            for e in range(V):
                                h[b, c + 1, i, d, e] = keep * h[b, c, i, d, e]
                        a = k[b, t, i, d] * fall
                        for e in range(V):
                            h[b, c + 1, i, d, e] += a * v_new[b, t, i, e]


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    h, v_new = torch.zeros(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(*(x.numpy() for x in (k, w, u, g, h, v_new)))
    return h, v_new
