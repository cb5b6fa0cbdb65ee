import torch


def kernel(x, weight):
    scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
    return x * scale * weight
