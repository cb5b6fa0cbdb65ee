import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def pack_and_multiply(A, scale, x, out):
    B, T, H, C = A.shape
    D = x.shape[3]
    width = C + 4
    a = np.zeros((C, width), np.float32)
    rows = np.zeros((width, D), np.float32)
    for b in range(B):
        for start in range(0, T, C):
            for h in range(H):
                for j in range(C):
                    f = scale[b, start + j, h]
                    for d in range(D):
                        rows[j, d] = x[b, start + j, h, d] * f
                    for i in range(C):
                        a[j, i] = A[b, start + j, h, i]
                for i in range(0, C, 2):
                    t = start + i
                    for d in range(D):
                        out[b, t, h, d] = 0.0
                        out[b, t + 1, h, d] = 0.0
                    for j in range(0, i + 2, 4):
                        p0, p1, p2, p3 = a[i, j], a[i, j + 1], a[i, j + 2], a[i, j + 3]
                        q0, q1, q2, q3 = a[i + 1, j], a[i + 1, j + 1], a[i + 1, j + 2], a[i + 1, j + 3]
                        for d in range(D):
                            x0, x1, x2, x3 = rows[j, d], rows[j + 1, d], rows[j + 2, d], rows[j + 3, d]
                            out[b, t, h, d] += (p0 * x0 + p1 * x1) + (p2 * x2 + p3 * x3)
                            out[b, t + 1, h, d] += (q0 * x0 + q1 * x1) + (q2 * x2 + q3 * x3)


def kernel(k, v, beta, A, g):
    w, u = torch.empty_like(k), torch.empty_like(v)
    decay = beta.numpy() * np.exp(g.numpy())
    pack_and_multiply(A.numpy(), decay, k.numpy(), w.numpy())
    pack_and_multiply(A.numpy(), beta.numpy(), v.numpy(), u.numpy())
    return w, u
