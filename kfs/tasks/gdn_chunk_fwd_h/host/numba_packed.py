import numpy as np
import torch
from numba import njit

CHUNK = 64


@njit(fastmath=True)
def recurrence(k, w, u, g, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    state = np.empty((K + 4, V), np.float32)
    values = np.empty((CHUNK, V), np.float32)
    keys = np.empty((K, CHUNK), np.float32)
    row = np.zeros(K + 4, np.float32)
    for b in range(B):
        for i in range(H):
            state[:] = 0.0
            for c in range(T // CHUNK):
                last = g[b, (c + 1) * CHUNK - 1, i]
                for d in range(K):
                    for e in range(V):
                        h[b, c, i, d, e] = state[d, e]
                for j in range(CHUNK):
                    t = c * CHUNK + j
                    fall = np.exp(last - g[b, t, i])
                    for d in range(K):
                        row[d] = w[b, t, i, d]
                        keys[d, j] = k[b, t, i, d] * fall
                    for e in range(V):
                        values[j, e] = u[b, t, i, e]
                    for d in range(0, K, 4):
                        a0, a1, a2, a3 = row[d], row[d + 1], row[d + 2], row[d + 3]
                        for e in range(V):
                            low = a0 * state[d, e] + a1 * state[d + 1, e]
                            values[j, e] -= low + (a2 * state[d + 2, e] + a3 * state[d + 3, e])
                    for e in range(V):
                        v_new[b, t, i, e] = values[j, e]
                keep = np.exp(last)
                for d in range(K):
                    for e in range(V):
                        state[d, e] *= keep
                    for j in range(0, CHUNK, 4):
                        a0, a1, a2, a3 = keys[d, j], keys[d, j + 1], keys[d, j + 2], keys[d, j + 3]
                        for e in range(V):
                            low = a0 * values[j, e] + a1 * values[j + 1, e]
                            state[d, e] += low + (a2 * values[j + 2, e] + a3 * values[j + 3, e])


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    h, v_new = torch.empty(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(*(x.numpy() for x in (k, w, u, g, h, v_new)))
    return h, v_new
