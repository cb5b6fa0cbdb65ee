import numpy as np
import torch
from numba import njit

CHUNK = 64
FASTMATH = False  # variants: True


@njit(fastmath=FASTMATH)
def recurrence(k, w, u, fall, keep, h, v_new):
    B, T, H, K = k.shape
    V = u.shape[3]
    for b in range(B):
        for i in range(H):
            for c in range(T // CHUNK):
                start, stop = c * CHUNK, (c + 1) * CHUNK
                for e in range(V):
                    for t in range(start, stop):
                        total = u[b, t, i, e]
                        for d in range(K):
                            total -= w[b, t, i, d] * h[b, c, i, d, e]
                        v_new[b, t, i, e] = total
                if stop < T:
                    for d in range(K):
                        for e in range(V):
                            total = keep[b, c, i] * h[b, c, i, d, e]
                            for t in range(start, stop):
                                total += k[b, t, i, d] * v_new[b, t, i, e] * fall[b, t, i]
                            h[b, c + 1, i, d, e] = total


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    gc = g.numpy().reshape(B, T // CHUNK, CHUNK, H)
    fall = np.exp(gc[:, :, -1:] - gc).reshape(B, T, H)
    keep = np.exp(gc[:, :, -1])
    h, v_new = torch.zeros(B, T // CHUNK, H, K, u.shape[-1]), torch.empty_like(u)
    recurrence(k.numpy(), w.numpy(), u.numpy(), fall, keep, h.numpy(), v_new.numpy())
    return h, v_new
