import torch


def kernel(x):
    tokens, hidden = x.shape
    group = torch.arange(hidden).div(128, rounding_mode="floor").expand(tokens, hidden)
    absmax = torch.zeros(tokens, hidden // 128).scatter_reduce_(1, group, x.abs(), reduce="amax")
    scale = absmax.clamp(min=1e-10) / 448.0
    q = x / scale.gather(1, group)
    return q.clamp(-448.0, 448.0), scale
