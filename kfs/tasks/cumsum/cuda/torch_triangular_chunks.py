import torch
import torch.nn.functional as F


def kernel(x):
    rows, cols = x.shape
    upper = torch.ones(32, 32, device=x.device).triu_()
    sums = F.pad(x, (0, -cols % 32)).view(rows, -1, 32) @ upper
    offsets = sums[:, :, 31].double().cumsum(dim=1).float()
    y = sums + F.pad(offsets[:, :-1], (1, 0)).unsqueeze(2)
    return y.view(rows, -1)[:, :cols].contiguous()
