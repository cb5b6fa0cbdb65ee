import torch

RECIPROCAL = False  # variants: True


def kernel(x):
    groups = x.view(-1, 128)
    q = groups.abs()
    scale = q.amax(dim=1, keepdim=True).clamp_(min=1e-10).div_(448.0)
    if RECIPROCAL:
        torch.mul(groups, scale.reciprocal(), out=q)
    else:
        torch.div(groups, scale, out=q)
    q.clamp_(-448.0, 448.0)
    return q.view(x.shape), scale.view(x.shape[0], -1)
