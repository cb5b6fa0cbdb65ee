import numpy as np
import torch
from scipy.special import erf

IN_PLACE = True  # variants: False


def kernel(x, w, bias):
    z = x.numpy() @ w.numpy()
    if not IN_PLACE:
        z = z + bias.numpy()
        return torch.from_numpy(np.float32(0.5) * z * (np.float32(1) + erf(z / np.float32(np.sqrt(2)))))
    z += bias.numpy()
    phi = z * np.float32(np.sqrt(0.5))
    erf(phi, out=phi)
    phi += np.float32(1)
    phi *= np.float32(0.5)
    phi *= z
    return torch.from_numpy(phi)
