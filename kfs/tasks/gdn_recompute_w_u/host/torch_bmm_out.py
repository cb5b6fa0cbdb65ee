import torch


def kernel(k, v, beta, A, g):
    B, T, H, C = A.shape
    n = B * (T // C)
    Ac = A.view(n, C, H, C)
    rate = beta.view(n, C, H, 1)
    decay = g.view(n, C, H, 1).exp().mul_(rate)
    kb = k.view(n, C, H, -1) * decay
    vb = v.view(n, C, H, -1) * rate
    w, u = torch.empty_like(kb), torch.empty_like(vb)
    for h in range(H):
        a = Ac[:, :, h]
        w[:, :, h] = torch.bmm(a, kb[:, :, h])
        u[:, :, h] = torch.bmm(a, vb[:, :, h])
    return w.view(k.shape), u.view(v.shape)
