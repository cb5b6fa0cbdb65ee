import torch


def kernel(x, weight):
    mean_square = torch.einsum("rc,rc->r", x, x) / x.shape[-1]
    scale = torch.rsqrt(mean_square + 1e-6)
    return torch.einsum("rc,r,c->rc", x, scale, weight)
