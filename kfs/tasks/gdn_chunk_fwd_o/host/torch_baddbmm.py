import torch

CONTIGUOUS = False  # variants: True


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    n = h.shape[1]
    C = T // n
    lift = g.exp()
    q = q * (lift * K**-0.5).unsqueeze(-1)
    k = k * lift.reciprocal_().unsqueeze(-1)
    q, k, v = (x.view(B, n, C, H, -1).transpose(2, 3) for x in (q, k, v_new))
    if CONTIGUOUS:
        k = k.mT.contiguous().mT
    q, k, v, h = q.flatten(0, 2), k.flatten(0, 2), v.flatten(0, 2), h.flatten(0, 2)
    attn = torch.bmm(q, k.mT).tril_()
    o = torch.bmm(q, h)
    o.baddbmm_(attn, v)
    return o.view(B, n, H, C, -1).transpose(2, 3).reshape(v_new.shape)
