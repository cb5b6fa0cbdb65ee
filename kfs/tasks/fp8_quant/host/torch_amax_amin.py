import torch


def kernel(x):
    groups = x.unflatten(1, (-1, 128))
    absmax = torch.maximum(groups.amax(dim=2), -groups.amin(dim=2))
    scale = torch.clamp(absmax, min=1e-10) / 448.0
    q = torch.clamp(groups * (1.0 / scale)[:, :, None], -448.0, 448.0)
    return q.reshape(x.shape), scale
