import torch.nn.functional as F


def kernel(x):
    peak = F.max_pool1d(x.abs().unsqueeze(1), kernel_size=128).squeeze(1)
    scale = peak.clamp(min=1e-10) / 448.0
    q = (x / scale.repeat_interleave(128, dim=1)).clamp_(-448.0, 448.0)
    return q, scale
