import torch


def kernel(x):
    groups = x.view(x.shape[0], -1, 128)
    absmax = torch.topk(groups.abs(), k=1, dim=-1).values
    scale = absmax.clamp(min=1e-10) / 448.0
    q = torch.clamp(groups / scale, min=-448.0, max=448.0)
    return q.view(x.shape), scale.squeeze(-1)
