import torch

BLOCK = 64  # variants: 8, 512


def kernel(x):
    out = torch.empty_like(x)
    for source, target in zip(x.split(BLOCK), out.split(BLOCK), strict=True):
        torch.cumsum(source, dim=-1, out=target)
    return out
