import torch


def kernel(x, weight):
    columns = x.t().contiguous()
    scale = torch.rsqrt(columns.square().mean(dim=0) + 1e-6)
    return (columns * scale * weight[:, None]).t().contiguous()
