import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def multiply(A, scale, x, out):
    B, T, H, C = A.shape
    D = x.shape[3]
    for b in range(B):
        for h in range(H):
            for t in range(T):
                start = t - t % C
                for d in range(D):
                    out[b, t, h, d] = 0.0
                j = 0
                while j + 4 <= t - start + 1:
                    s = start + j
                    a0 = A[b, t, h, j] * scale[b, s, h]
                    a1 = A[b, t, h, j + 1] * scale[b, s + 1, h]
                    a2 = A[b, t, h, j + 2] * scale[b, s + 2, h]
                    a3 = A[b, t, h, j + 3] * scale[b, s + 3, h]
                    for d in range(D):
                        out[b, t, h, d] += (a0 * x[b, s, h, d] + a1 * x[b, s + 1, h, d]) + (
                            a2 * x[b, s + 2, h, d] + a3 * x[b, s + 3, h, d]
                        )
                    j += 4
                for i in range(j, t - start + 1):
                    a = A[b, t, h, i] * scale[b, start + i, h]
                    for d in range(D):
                        out[b, t, h, d] += a * x[b, start + i, h, d]


def kernel(k, v, beta, A, g):
    w, u = torch.empty_like(k), torch.empty_like(v)
    decay = beta.numpy() * np.exp(g.numpy())
    multiply(A.numpy(), decay, k.numpy(), w.numpy())
    multiply(A.numpy(), beta.numpy(), v.numpy(), u.numpy())
    return w, u
