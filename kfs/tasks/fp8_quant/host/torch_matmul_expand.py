import torch


def kernel(x):
    tokens, hidden = x.shape
    groups = hidden // 128
    absmax = x.view(tokens, groups, 128).abs().amax(dim=-1)
    scale = absmax.clamp(min=1e-10) / 448.0
    spread = torch.kron(torch.eye(groups), torch.ones(1, 128))
    q = x * (scale.reciprocal() @ spread)
    return q.clamp(-448.0, 448.0), scale
