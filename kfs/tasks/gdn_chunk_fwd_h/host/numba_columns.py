import numpy as np
import torch
from numba import njit

CHUNK = 64
BLOCK = 16  # variants: 4, 8


@njit(fastmath=True)
def recurrence(k, w, u, g, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    state = np.empty((K, BLOCK), np.float32)
    following = np.empty((K, BLOCK), np.float32)
    value = np.empty(BLOCK, np.float32)
    for b in range(B):
        for i in range(H):
            for first in range(0, V, BLOCK):
                size = min(BLOCK, V - first)
                state[:] = 0.0
                for c in range(T // CHUNK):
                    last = g[b, (c + 1) * CHUNK - 1, i]
                    keep = np.exp(last)
                    for d in range(K):
                        for e in range(size):
                            h[b, c, i, d, first + e] = state[d, e]
                            following[d, e] = state[d, e] * keep
                    for t in range(c * CHUNK, (c + 1) * CHUNK):
                        fall = np.exp(last - g[b, t, i])
                        for e in range(size):
                            value[e] = u[b, t, i, first + e]
                        for d in range(K):
                            for e in range(size):
                                value[e] -= w[b, t, i, d] * state[d, e]
                        for e in range(size):
                            v_new[b, t, i, first + e] = value[e]
                        for d in range(K):
                            for e in range(size):
                                following[d, e] += k[b, t, i, d] * fall * value[e]
                    state, following = following, state


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    h, v_new = torch.empty(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(*(x.numpy() for x in (k, w, u, g, h, v_new)))
    return h, v_new
