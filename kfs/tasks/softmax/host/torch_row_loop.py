import torch


def kernel(x):
    out = torch.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = torch.softmax(x[i], dim=-1)
    return out
