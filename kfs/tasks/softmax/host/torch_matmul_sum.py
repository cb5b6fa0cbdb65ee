import torch


def kernel(x):
    out = (x - x.amax(dim=-1, keepdim=True)).exp_()
    ones = torch.ones(x.shape[-1], 1, dtype=x.dtype)
    return out.div_(out @ ones)
