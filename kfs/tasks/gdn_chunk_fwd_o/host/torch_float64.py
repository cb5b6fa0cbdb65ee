import torch


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    n = h.shape[1]
    C = T // n
    q, k, v, h, g = (x.double() for x in (q, k, v_new, h, g))
    q, k, v = (x.view(B, n, C, H, -1).transpose(2, 3) for x in (q, k, v))
    g = g.view(B, n, C, H).transpose(2, 3)
    scores = q @ k.transpose(-1, -2) * torch.exp(g[..., :, None] - g[..., None, :])
    o = (q @ h) * torch.exp(g)[..., None] + torch.tril(scores) @ v
    return (o * K**-0.5).transpose(2, 3).reshape(v_new.shape).float()
