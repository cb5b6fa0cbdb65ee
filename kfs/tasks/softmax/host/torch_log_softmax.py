import torch


def kernel(x):
    return torch.log_softmax(x, dim=-1).exp_()
