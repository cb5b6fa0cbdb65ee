import torch


def kernel(k, v, beta, A, g):
    B, T, H, C = A.shape
    n = T // C
    Ac = A.view(B, n, C, H, C).transpose(2, 3)
    rate = beta.view(B, n, C, H).transpose(2, 3).unsqueeze(-2)
    decay = g.view(B, n, C, H).transpose(2, 3).unsqueeze(-2).exp()
    Au = Ac * rate
    Aw = Au * decay
    w = torch.matmul(Aw, k.view(B, n, C, H, -1).transpose(2, 3))
    u = torch.matmul(Au, v.view(B, n, C, H, -1).transpose(2, 3))
    return w.transpose(2, 3).reshape(k.shape), u.transpose(2, 3).reshape(v.shape)
