import torch


def kernel(x):
    groups = x.view(x.shape[0], -1, 128)
    peak = groups.abs()
    width = 128
    while width > 1:
        width //= 2
        peak = torch.maximum(peak[..., :width], peak[..., width:])
    scale = peak.clamp(min=1e-10) / 448.0
    q = (groups / scale).clamp(-448.0, 448.0)
    return q.view_as(x), scale.squeeze(-1)
