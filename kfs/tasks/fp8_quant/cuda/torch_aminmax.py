import torch


def kernel(x):
    groups = x.view(-1, 128)
    low, high = torch.aminmax(groups, dim=1, keepdim=True)
    scale = torch.maximum(high, low.neg_()).clamp_(min=1e-10).div_(448.0)
    q = torch.mul(groups, scale.reciprocal()).clamp_(-448.0, 448.0)
    return q.view(x.shape), scale.view(x.shape[0], -1)
