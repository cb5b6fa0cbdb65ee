import torch


def kernel(x, weight):
    out = torch.mul(x, x)
    scale = out.mean(dim=-1, keepdim=True).add_(1e-6).rsqrt_()
    torch.mul(x, scale, out=out)
    return out.mul_(weight)
