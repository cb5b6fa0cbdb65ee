import torch

SCALE_FIRST = True  # variants: False


def kernel(k, v, beta, A, g):
    B, T, H, C = A.shape
    split = (B, T // C, C, H)
    Ac, kc, vc = A.view(*split, C), k.view(*split, -1), v.view(*split, -1)
    rate, decay = beta.view(split), g.view(split).exp()
    if SCALE_FIRST:
        w = torch.einsum("bnihj,bnjhd->bnihd", Ac, kc * (rate * decay)[..., None])
        u = torch.einsum("bnihj,bnjhd->bnihd", Ac, vc * rate[..., None])
    else:
        w = torch.einsum("bnihj,bnjh,bnjh,bnjhd->bnihd", Ac, rate, decay, kc)
        u = torch.einsum("bnihj,bnjh,bnjhd->bnihd", Ac, rate, vc)
    return w.reshape(k.shape).contiguous(), u.reshape(v.shape).contiguous()
