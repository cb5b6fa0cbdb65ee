import numpy as np
import torch

OPTIMIZE = False  # variants: True


def kernel(k, v, beta, A, g):
    k, v, beta, A, g = (x.numpy() for x in (k, v, beta, A, g))
    B, T, H, C = A.shape
    Ac, kc, vc = (x.reshape(B * (T // C), C, H, -1) for x in (A, k, v))
    rate = beta.reshape(-1, C, H, 1)
    decay = rate * np.exp(g).reshape(-1, C, H, 1)
    w = np.einsum("nihj,njhd->nihd", Ac, kc * decay, optimize=OPTIMIZE)
    u = np.einsum("nihj,njhd->nihd", Ac, vc * rate, optimize=OPTIMIZE)
    w, u = np.ascontiguousarray(w), np.ascontiguousarray(u)
    return torch.from_numpy(w).view(k.shape), torch.from_numpy(u).view(v.shape)
