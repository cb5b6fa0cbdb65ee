import torch


def kernel(x):
    return torch.nn.functional.softmin(-x, dim=-1)
