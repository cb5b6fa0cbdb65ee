import torch


def kernel(k, v, beta, A, g):
    C = A.shape[-1]
    kc, vc, ac, bc, gc = (x.unflatten(1, (-1, C)) for x in (k, v, A, beta, g))
    w = torch.einsum("bnthc,bnch,bnch,bnchk->bnthk", ac, bc, gc.exp(), kc)
    u = torch.einsum("bnthc,bnch,bnchv->bnthv", ac, bc, vc)
    return w.reshape(k.shape).contiguous(), u.reshape(v.shape).contiguous()
