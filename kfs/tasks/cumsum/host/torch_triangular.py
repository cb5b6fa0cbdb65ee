import torch

BLOCK = 32  # variants: 8, 64, 128


def kernel(x):
    rows, cols = x.shape
    padded = torch.nn.functional.pad(x, (0, -cols % BLOCK)).view(rows, -1, BLOCK)
    within = padded @ torch.ones(BLOCK, BLOCK, dtype=x.dtype).triu()
    before = torch.cumsum(within[:, :, -1], dim=-1) - within[:, :, -1]
    return (within + before[:, :, None]).view(rows, -1)[:, :cols].contiguous()
