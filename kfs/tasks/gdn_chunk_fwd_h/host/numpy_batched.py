import numpy as np
import torch

CHUNK = 64
SCALED = "keys"  # variants: "values"


def kernel(k, w, u, g):
    k, w, u, g = (x.numpy() for x in (k, w, u, g))
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    gc = g.reshape(B, n, CHUNK, H, 1)
    fall = np.exp(gc[:, :, -1:] - gc)
    keep = np.exp(gc[:, :, -1, :, :, None])
    h, v_new = np.zeros((B, n, H, K, V), np.float32), np.empty_like(u)
    if SCALED == "keys":
        k = k.reshape(*fall.shape[:-1], K) * fall
    kc, wc, uc, vc, fc = (x.reshape(B, n, CHUNK, H, -1).swapaxes(2, 3) for x in (k, w, u, v_new, fall))
    for c in range(n):
        v = uc[:, c] - np.matmul(wc[:, c], h[:, c])
        vc[:, c] = v
        if c + 1 < n:
            if SCALED == "values":
                v *= fc[:, c]
            np.matmul(kc[:, c].swapaxes(-1, -2), v, out=h[:, c + 1])
            h[:, c + 1] += keep[:, c] * h[:, c]
    return torch.from_numpy(h), torch.from_numpy(v_new)
