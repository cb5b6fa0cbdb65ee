import torch


def kernel(x):
    tokens, hidden = x.shape
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, hidden // 128)
    for g in range(hidden // 128):
        part = x[:, g * 128 : (g + 1) * 128]
        s = part.abs().amax(dim=1).clamp_(min=1e-10).div_(448.0)
        scale[:, g] = s
        q[:, g * 128 : (g + 1) * 128] = (part / s[:, None]).clamp_(-448.0, 448.0)
    return q, scale
