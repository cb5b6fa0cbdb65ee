import torch

BLOCK = 64  # variants: 8, 512


def kernel(x):
    out = torch.empty_like(x)
    for part, block in zip(out.split(BLOCK), x.split(BLOCK), strict=True):
        torch.softmax(block, dim=-1, out=part)
    return out
