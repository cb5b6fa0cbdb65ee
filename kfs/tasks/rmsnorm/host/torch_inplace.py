import torch


def kernel(x, weight):
    scale = torch.square(x).mean(dim=-1, keepdim=True).add_(1e-6).rsqrt_()
    return torch.mul(x, scale).mul_(weight)
