import torch

PARTS = 32  # variants: 4, 256


def kernel(x):
    return torch.cat([torch.softmax(part, dim=-1) for part in x.chunk(PARTS)])
