import torch


def kernel(x):
    peak, _ = torch.max(x, dim=-1, keepdim=True)
    e = torch.exp(x - peak)
    total = torch.sum(e, dim=-1, keepdim=True)
    return torch.div(e, total)
