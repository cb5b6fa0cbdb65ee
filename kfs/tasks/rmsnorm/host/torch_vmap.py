import torch


def kernel(x, weight):
    def one_row(row):
        return row * torch.rsqrt(torch.mean(row * row) + 1e-6) * weight

    return torch.vmap(one_row)(x)
