import torch


def kernel(x, weight):
    squares = x * x
    scale = 1.0 / torch.sqrt(squares.sum(dim=1, keepdim=True) / x.shape[1] + 1e-6)
    return x * scale * weight
