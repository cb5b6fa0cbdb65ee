import torch

TOKENS = 8  # variants: 32


def kernel(x):
    quantised, scales = [], []
    for rows in x.split(TOKENS):
        groups = rows.unflatten(1, (-1, 128))
        scale = groups.abs().amax(dim=-1).clamp(min=1e-10) / 448.0
        quantised.append((groups / scale.unsqueeze(-1)).clamp(-448.0, 448.0).flatten(1))
        scales.append(scale)
    return torch.cat(quantised), torch.cat(scales)
