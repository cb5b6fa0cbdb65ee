import torch


def kernel(x):
    middle = x.shape[1] // 2
    out = torch.empty_like(x)
    out[:, :middle] = torch.cumsum(x[:, :middle], dim=-1)
    out[:, middle:] = torch.cumsum(x[:, middle:], dim=-1) + out[:, middle - 1 : middle]
    return out
