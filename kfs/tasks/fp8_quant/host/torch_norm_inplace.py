import torch


def kernel(x):
    groups = x.view(x.shape[0], -1, 128)
    scale = torch.linalg.vector_norm(groups, ord=float("inf"), dim=-1, keepdim=True).clamp_(min=1e-10).div_(448.0)
    q = groups * scale.reciprocal()
    return q.clamp_(-448.0, 448.0).view_as(x), scale.squeeze(-1)
