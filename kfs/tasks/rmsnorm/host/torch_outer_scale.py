import torch


def kernel(x, weight):
    scale = torch.rsqrt(x.pow(2).mean(dim=-1) + 1e-6)
    return torch.outer(scale, weight).mul_(x)
