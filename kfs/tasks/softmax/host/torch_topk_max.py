import torch


def kernel(x):
    peak = torch.topk(x, 1, dim=-1).values
    e = torch.exp(x - peak)
    return e / e.sum(dim=-1, keepdim=True)
