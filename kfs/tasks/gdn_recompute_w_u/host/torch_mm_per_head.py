import torch


def kernel(k, v, beta, A, g):
    B, T, H, C = A.shape
    w, u = torch.empty_like(k), torch.empty_like(v)
    for b in range(B):
        for h in range(H):
            for start in range(0, T, C):
                s = slice(start, start + C)
                rate = beta[b, s, h]
                a = A[b, s, h] * rate
                u[b, s, h] = a @ v[b, s, h]
                w[b, s, h] = (a * g[b, s, h].exp()) @ k[b, s, h]
    return w, u
