import torch.nn.functional as F


def kernel(x):
    absmax = F.max_pool1d(x.abs().unsqueeze(0), kernel_size=128).squeeze(0)
    scale = absmax.clamp(min=1e-10) / 448.0
    wide = F.interpolate(scale.unsqueeze(0), scale_factor=128.0, mode="nearest").squeeze(0)
    return (x / wide).clamp(-448.0, 448.0), scale
