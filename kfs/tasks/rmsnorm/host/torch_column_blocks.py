import torch

BLOCK = 256  # variants: 16, 64


def kernel(x, weight):
    squares = torch.zeros(x.shape[0], 1, dtype=x.dtype)
    for part in x.split(BLOCK, dim=-1):
        squares += part.square().sum(dim=-1, keepdim=True)
    scale = torch.rsqrt(squares / x.shape[-1] + 1e-6)
    return torch.cat([part * scale * gain for part, gain in zip(x.split(BLOCK, dim=-1), weight.split(BLOCK), strict=True)], -1)
