import torch.nn.functional as F


def kernel(x, w, bias):
    return F.gelu(F.linear(x, w.t().contiguous(), bias))
