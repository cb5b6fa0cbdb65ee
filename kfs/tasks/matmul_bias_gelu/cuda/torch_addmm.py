import torch
import torch.nn.functional as F


def kernel(x, w, bias):
    return F.gelu(torch.addmm(bias, x, w))
