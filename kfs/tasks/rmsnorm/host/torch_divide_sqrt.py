import torch


def kernel(x, weight):
    mean_square = torch.mean(x**2, dim=-1, keepdim=True)
    return weight * (x / torch.sqrt(mean_square + 1e-6))
