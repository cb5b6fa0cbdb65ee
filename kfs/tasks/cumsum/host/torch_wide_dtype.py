import torch


def kernel(x):
    return torch.cumsum(x, dim=-1, dtype=torch.float64).to(x.dtype)
