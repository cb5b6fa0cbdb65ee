import torch
import torch.nn.functional as F


def kernel(x, w, bias):
    x1 = torch.cat([x, x.new_ones(x.shape[0], 1)], dim=1)
    w1 = torch.cat([w, bias[None]], dim=0)
    return F.gelu(x1 @ w1)
