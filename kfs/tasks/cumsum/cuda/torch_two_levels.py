import torch
import torch.nn.functional as F

WIDTH = 128  # variants: 32, 512


def kernel(x):
    rows, cols = x.shape
    parts = F.pad(x, (0, -cols % WIDTH)).view(rows, -1, WIDTH)
    sums = torch.cumsum(parts, dim=2)
    offsets = torch.cumsum(sums[:, :, -1], dim=1)
    sums[:, 1:] += offsets[:, :-1, None]
    return sums.view(rows, -1)[:, :cols].contiguous()
