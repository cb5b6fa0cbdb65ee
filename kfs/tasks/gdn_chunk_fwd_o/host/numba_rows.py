import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False


@njit(fastmath=FASTMATH)
def rows(q, k, v, h, g, scale, o):
    B, T, H, K = q.shape
    V = v.shape[3]
    C = T // h.shape[1]
    for b in range(B):
        for t in range(T):
            start = t - t % C
            for i in range(H):
                for e in range(V):
                    o[b, t, i, e] = 0.0
                lift = scale * np.exp(g[b, t, i])
                for d in range(K):
                    a = q[b, t, i, d] * lift
                    for e in range(V):
                        o[b, t, i, e] += a * h[b, t // C, i, d, e]
                for s in range(start, t + 1):
                    dot = np.float32(0.0)
                    for d in range(K):
                        dot += q[b, t, i, d] * k[b, s, i, d]
                    a = dot * scale * np.exp(g[b, t, i] - g[b, s, i])
                    for e in range(V):
                        o[b, t, i, e] += a * v[b, s, i, e]


def kernel(q, k, v_new, h, g):
    o = torch.empty_like(v_new)
    rows(*(x.numpy() for x in (q, k, v_new, h, g)), np.float32(q.shape[-1] ** -0.5), o.numpy())
    return o
