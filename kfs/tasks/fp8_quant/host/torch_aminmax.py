import torch


def kernel(x):
    groups = x.reshape(x.shape[0], -1, 128)
    low, high = torch.aminmax(groups, dim=-1)
    scale = torch.maximum(high, low.neg_()).clamp_(min=1e-10).div_(448.0)
    q = torch.div(groups, scale.unsqueeze(-1))
    return q.clamp_(-448.0, 448.0).view_as(x), scale
