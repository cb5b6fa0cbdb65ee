import numpy as np
import torch

SCALE = "inputs"  # variants: "matrix"


def kernel(k, v, beta, A, g):
    k, v, beta, A, g = (x.numpy() for x in (k, v, beta, A, g))
    B, T, H, C = A.shape
    split = (B, T // C, C, H)
    w, u = np.empty_like(k), np.empty_like(v)
    Ac, kc, vc, wc, uc = (x.reshape(*split, -1).swapaxes(2, 3) for x in (A, k, v, w, u))
    if SCALE == "inputs":
        decay = (beta * np.exp(g))[..., None]
        kc = (k * decay).reshape(*split, -1).swapaxes(2, 3)
        vc = (v * beta[..., None]).reshape(*split, -1).swapaxes(2, 3)
        np.matmul(Ac, kc, out=wc)
        np.matmul(Ac, vc, out=uc)
    else:
        rate, decay = (x.reshape(split).swapaxes(2, 3)[..., None, :] for x in (beta, np.exp(g)))
        Au = Ac * rate
        np.matmul(Au, vc, out=uc)
        np.matmul(Au * decay, kc, out=wc)
    return torch.from_numpy(w), torch.from_numpy(u)
