import torch


def kernel(x, weight):
    rows, cols = x.shape
    squares = torch.bmm(x.view(rows, 1, cols), x.view(rows, cols, 1)).view(rows, 1)
    return (x * torch.rsqrt(squares / cols + 1e-6)).mul_(weight)
