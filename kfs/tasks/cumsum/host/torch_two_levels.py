import torch

BLOCK = 64  # variants: 16, 256


def kernel(x):
    rows, cols = x.shape
    blocks = torch.nn.functional.pad(x, (0, -cols % BLOCK)).view(rows, -1, BLOCK)
    within = torch.cumsum(blocks, dim=-1)
    ends = torch.cumsum(within[..., -1], dim=-1)
    within[:, 1:] += ends[:, :-1, None]
    return within.view(rows, -1)[:, :cols].contiguous()
