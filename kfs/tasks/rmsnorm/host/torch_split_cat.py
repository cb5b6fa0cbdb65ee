import torch

PARTS = 16  # variants: 128


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def kernel(x, weight):
    return torch.cat([rms_norm(part, weight) for part in x.chunk(PARTS)])
