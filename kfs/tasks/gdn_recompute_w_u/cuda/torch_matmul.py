import torch


def kernel(k, v, beta, A, g):
    C = A.shape[-1]
    a = A.unflatten(1, (-1, C)).transpose(2, 3).contiguous()
    right = torch.cat((k * (beta * g.exp()).unsqueeze(-1), v * beta.unsqueeze(-1)), dim=-1)
    both = (a @ right.unflatten(1, (-1, C)).transpose(2, 3)).transpose(2, 3).flatten(1, 2)
    w, u = both.split((k.shape[-1], v.shape[-1]), dim=-1)
    return w.contiguous(), u.contiguous()
