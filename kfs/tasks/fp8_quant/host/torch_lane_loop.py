import torch


def kernel(x):
    groups = x.view(x.shape[0], -1, 128)
    peak = groups[:, :, 0].abs()
    for lane in range(1, 128):
        torch.maximum(peak, groups[:, :, lane].abs(), out=peak)
    scale = peak.clamp(min=1e-10) / 448.0
    q = (groups / scale.unsqueeze(-1)).clamp(-448.0, 448.0)
    return q.view(x.shape), scale
