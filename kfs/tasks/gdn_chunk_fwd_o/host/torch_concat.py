import torch


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    n = h.shape[1]
    C = T // n
    q, k, v = (x.reshape(B, n, C, H, -1).transpose(2, 3) for x in (q, k, v_new))
    g = g.reshape(B, n, C, H).transpose(2, 3)
    scores = q @ k.mT
    scores = torch.tril(scores * torch.exp(g.unsqueeze(-1) - g.unsqueeze(-2)))
    left = torch.cat((q * g.exp().unsqueeze(-1), scores), dim=-1)
    right = torch.cat((h, v), dim=-2)
    o = K**-0.5 * (left @ right)
    return o.transpose(2, 3).reshape(v_new.shape)
