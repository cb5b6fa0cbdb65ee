import torch


def kernel(x):
    absmax = torch.amax(torch.abs(x.view(x.shape[0], -1, 128)), dim=-1)
    scale = torch.maximum(absmax, torch.full_like(absmax, 1e-10)) / 448.0
    wide = torch.repeat_interleave(scale, 128, dim=1)
    q = x / wide
    q = torch.minimum(q, torch.full_like(q, 448.0))
    q = torch.maximum(q, torch.full_like(q, -448.0))
    return q, scale
