import numpy as np
import torch
from numba import njit

CHUNK = 64


@njit(fastmath=True)
def recurrence(k, w, u, g, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    state = np.empty((K, V), np.float32)
    update = np.empty((K, V), np.float32)
    values = np.empty((CHUNK, V), np.float32)
    left = np.empty((CHUNK, K), np.float32)
    keys = np.empty((K, CHUNK), np.float32)
    for b in range(B):
        for i in range(H):
            state[:] = 0.0
            for c in range(T // CHUNK):
                last = g[b, (c + 1) * CHUNK - 1, i]
                keep = np.exp(last)
                for j in range(CHUNK):
                    fall = np.exp(last - g[b, c * CHUNK + j, i])
                    for d in range(K):
                        left[j, d] = w[b, c * CHUNK + j, i, d]
                        keys[d, j] = k[b, c * CHUNK + j, i, d] * fall
                np.dot(left, state, values)
                for j in range(CHUNK):
                    for e in range(V):
                        values[j, e] = u[b, c * CHUNK + j, i, e] - values[j, e]
                        v_new[b, c * CHUNK + j, i, e] = values[j, e]
                np.dot(keys, values, update)
                for d in range(K):
                    for e in range(V):
                        h[b, c, i, d, e] = state[d, e]
                        state[d, e] = state[d, e] * keep + update[d, e]


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    h, v_new = torch.empty(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(*(x.numpy() for x in (k, w, u, g, h, v_new)))
    return h, v_new
