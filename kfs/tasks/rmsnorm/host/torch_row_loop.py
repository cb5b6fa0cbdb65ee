import torch


def kernel(x, weight):
    out = torch.empty_like(x)
    for source, target in zip(x, out, strict=True):
        scale = (torch.dot(source, source) / source.numel() + 1e-6).rsqrt()
        torch.mul(source, scale, out=target)
    return out.mul_(weight)
