import torch


def kernel(x):
    groups = x.view(x.shape[0], -1, 128)
    peak = groups.abs().amax(dim=2)
    peak = torch.maximum(peak, torch.full_like(peak, 1e-10))
    scale = peak / 448.0
    q = torch.clamp(groups / scale[:, :, None], -448.0, 448.0)
    return q.view(x.shape), scale
