import torch

TRIANGLE = True  # variants: False


def kernel(k, v, beta, A, g):
    B, T, H, C = A.shape
    split = (B, T // C, C, H)
    Ac, kc, vc = A.view(*split, C), k.view(*split, -1), v.view(*split, -1)
    rate = beta.view(split).unsqueeze(-1)
    decay = rate * g.view(split).unsqueeze(-1).exp()
    w, u = torch.zeros_like(kc), torch.zeros_like(vc)
    for j in range(C):
        first = j if TRIANGLE else 0
        column = Ac[:, :, first:, :, j : j + 1]
        w[:, :, first:].addcmul_(column, kc[:, :, j : j + 1] * decay[:, :, j : j + 1])
        u[:, :, first:].addcmul_(column, vc[:, :, j : j + 1] * rate[:, :, j : j + 1])
    return w.view(k.shape), u.view(v.shape)
