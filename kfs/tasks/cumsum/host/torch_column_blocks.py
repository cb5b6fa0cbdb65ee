import torch

BLOCK = 256  # variants: 16, 64


def kernel(x):
    out = torch.empty_like(x)
    for start in range(0, x.shape[1], BLOCK):
        part = torch.cumsum(x[:, start : start + BLOCK], dim=-1)
        if start:
            part += out[:, start - 1 : start]
        out[:, start : start + BLOCK] = part
    return out
