import numpy as np
import torch
from numba import njit

CHUNK = 64
FASTMATH = True  # variants: False


@njit(fastmath=FASTMATH)
def recurrence(k, w, u, g, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    state = np.empty((V, K), np.float32)
    following = np.empty((V, K), np.float32)
    for b in range(B):
        for i in range(H):
            state[:] = 0.0
            for t in range(T):
                c = t // CHUNK
                last = g[b, (c + 1) * CHUNK - 1, i]
                if t % CHUNK == 0:
                    keep = np.exp(last)
                    for e in range(V):
                        for d in range(K):
                            h[b, c, i, d, e] = state[e, d]
                            following[e, d] = state[e, d] * keep
                fall = np.exp(last - g[b, t, i])
                for e in range(V):
                    total = np.float32(0.0)
                    for d in range(K):
                        total += w[b, t, i, d] * state[e, d]
                    value = u[b, t, i, e] - total
                    v_new[b, t, i, e] = value
                    value *= fall
                    for d in range(K):
                        following[e, d] += k[b, t, i, d] * value
                if t % CHUNK == CHUNK - 1:
                    state, following = following, state


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    h, v_new = torch.empty(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(*(x.numpy() for x in (k, w, u, g, h, v_new)))
    return h, v_new
