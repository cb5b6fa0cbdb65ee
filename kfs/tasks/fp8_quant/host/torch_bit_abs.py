import torch


def kernel(x):
    bits = x.view(torch.int32).view(x.shape[0], -1, 128)
    peak = torch.bitwise_and(bits, 0x7FFFFFFF).amax(dim=-1).view(torch.float32)
    scale = peak.clamp_(min=1e-10).div_(448.0)
    q = x.view(bits.shape) * scale.reciprocal().unsqueeze(-1)
    return torch.nn.functional.hardtanh_(q, -448.0, 448.0).view_as(x), scale
