import torch


def kernel(x, weight):
    cols = x.shape[-1]
    averager = torch.full((cols,), 1.0 / cols, dtype=x.dtype)
    scale = torch.mv(x.square(), averager).add_(1e-6).rsqrt_()
    return torch.mul(x, scale[:, None]).mul_(weight)
