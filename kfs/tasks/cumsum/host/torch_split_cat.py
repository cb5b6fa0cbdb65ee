import torch

PARTS = 16  # variants: 2, 128


def kernel(x):
    return torch.cat([part.cumsum(dim=-1) for part in torch.chunk(x, PARTS)])
