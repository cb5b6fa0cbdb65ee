import math

import torch


def kernel(x, w, bias):
    z = torch.addmm(bias, x, w)
    phi = z.mul(math.sqrt(0.5)).erf_().add_(1.0).mul_(0.5)
    return phi.mul_(z)
