import torch.nn.functional as F


def kernel(x, w, bias):
    z = F.conv1d(x.t().unsqueeze(0), w.t().unsqueeze(-1), bias)
    return F.gelu(z[0].t().contiguous())
