import torch

BLOCK = 64  # variants: 8, 512, 2048


def kernel(x, weight):
    out = torch.empty_like(x)
    for source, target in zip(x.split(BLOCK), out.split(BLOCK), strict=True):
        torch.square(source, out=target)
        scale = target.mean(dim=-1, keepdim=True).add_(1e-6).rsqrt_()
        torch.mul(source, scale, out=target)
        target.mul_(weight)
    return out
