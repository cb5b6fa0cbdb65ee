import torch


def kernel(x):
    wide = x.double().reshape(x.shape[0], -1, 128)
    scale = torch.clamp(wide.abs().amax(dim=-1), min=1e-10) / 448.0
    q = torch.clamp(wide / scale[..., None], -448.0, 448.0)
    return q.reshape(x.shape).float(), scale.float()
