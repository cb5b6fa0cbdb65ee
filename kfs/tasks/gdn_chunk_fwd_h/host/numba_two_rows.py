import numpy as np
import torch
from numba import njit

CHUNK = 64


@njit(fastmath=True)
def add_product(a, x, out):
    """out += a @ x, two rows and four terms at a time; sizes are even and a multiple of four."""
    for i in range(0, a.shape[0], 2):
        for j in range(0, a.shape[1], 4):
            p0, p1, p2, p3 = a[i, j], a[i, j + 1], a[i, j + 2], a[i, j + 3]
            q0, q1, q2, q3 = a[i + 1, j], a[i + 1, j + 1], a[i + 1, j + 2], a[i + 1, j + 3]
            for e in range(x.shape[1]):
                x0, x1, x2, x3 = x[j, e], x[j + 1, e], x[j + 2, e], x[j + 3, e]
                out[i, e] += (p0 * x0 + p1 * x1) + (p2 * x2 + p3 * x3)
                out[i + 1, e] += (q0 * x0 + q1 * x1) + (q2 * x2 + q3 * x3)


@njit(fastmath=True)
def recurrence(k, w, u, g, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    width = K + (-K) % 4
    state = np.zeros((width, V), np.float32)
    values = np.empty((CHUNK, V), np.float32)
    left = np.zeros((CHUNK, width), np.float32)
    keys = np.zeros((width, CHUNK), np.float32)
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
                        left[j, d] = -w[b, t, i, d]
                        keys[d, j] = k[b, t, i, d] * fall
                    for e in range(V):
                        values[j, e] = u[b, t, i, e]
                add_product(left, state, values)
                for j in range(CHUNK):
                    for e in range(V):
                        v_new[b, c * CHUNK + j, i, e] = values[j, e]
                state *= np.exp(last)
                add_product(keys, values, state)


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    h, v_new = torch.empty(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(*(x.numpy() for x in (k, w, u, g, h, v_new)))
    return h, v_new
