import torch


def kernel(x, weight):
    mean_square = (x * x).mean(dim=-1, keepdim=True).repeat(1, x.shape[-1])
    denominator = torch.sqrt(mean_square + torch.full_like(x, 1e-6))
    gain = weight.expand_as(x).contiguous()
    return x / denominator * gain
