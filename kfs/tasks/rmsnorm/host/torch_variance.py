import torch


def kernel(x, weight):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    scale = torch.rsqrt(variance + mean * mean + 1e-6)
    return (x * scale).mul_(weight)
