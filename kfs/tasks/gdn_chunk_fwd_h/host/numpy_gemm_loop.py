import numpy as np
import torch

CHUNK = 64


def kernel(k, w, u, g):
    k, w, u, g = (x.numpy() for x in (k, w, u, g))
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    h, v_new = np.empty((B, n, H, K, V), np.float32), np.empty_like(u)
    for b in range(B):
        for i in range(H):
            state = np.zeros((K, V), np.float32)
            for c in range(n):
                s = slice(c * CHUNK, (c + 1) * CHUNK)
                h[b, c, i] = state
                v = u[b, s, i] - np.dot(w[b, s, i], state)
                v_new[b, s, i] = v
                v *= np.exp(g[b, s.stop - 1, i] - g[b, s, i, None])
                state *= np.exp(g[b, s.stop - 1, i])
                state += np.dot(k[b, s, i].T, v)
    return torch.from_numpy(h), torch.from_numpy(v_new)
