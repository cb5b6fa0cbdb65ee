import torch


def kernel(x):
    parts = x.split(128, dim=1)
    scale = torch.stack([p.abs().amax(dim=1) for p in parts], dim=1).clamp(min=1e-10) / 448.0
    quantised = [p / s for p, s in zip(parts, scale.split(1, dim=1), strict=True)]
    return torch.cat(quantised, dim=1).clamp_(-448.0, 448.0), scale
