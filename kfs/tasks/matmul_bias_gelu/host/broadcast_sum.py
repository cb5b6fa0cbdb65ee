import torch
import torch.nn.functional as F

ROWS = 8  # variants: 64


def kernel(x, w, bias):
    parts = []
    for rows in x.split(ROWS):
        products = rows[:, :, None] * w[None]
        parts.append(F.gelu(products.sum(dim=1) + bias))
    return torch.cat(parts)
