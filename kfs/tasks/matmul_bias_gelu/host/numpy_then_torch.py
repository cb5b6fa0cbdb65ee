import numpy as np
import torch
import torch.nn.functional as F


def kernel(x, w, bias):
    z = np.matmul(x.numpy(), w.numpy())
    np.add(z, bias.numpy(), out=z)
    return F.gelu(torch.from_numpy(z))
