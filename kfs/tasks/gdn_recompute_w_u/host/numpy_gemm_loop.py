import numpy as np
import torch


def kernel(k, v, beta, A, g):
    k, v, beta, A, g = (x.numpy() for x in (k, v, beta, A, g))
    B, T, H, C = A.shape
    decay = beta * np.exp(g)
    w, u = np.empty_like(k), np.empty_like(v)
    for b in range(B):
        for c in range(0, T, C):
            for h in range(H):
                a = A[b, c : c + C, h]
                w[b, c : c + C, h] = np.dot(a * decay[b, c : c + C, h], k[b, c : c + C, h])
                u[b, c : c + C, h] = np.dot(a * beta[b, c : c + C, h], v[b, c : c + C, h])
    return torch.from_numpy(w), torch.from_numpy(u)
