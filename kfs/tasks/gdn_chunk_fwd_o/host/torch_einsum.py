import torch

FUSED = False  # variants: True


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    n = h.shape[1]
    C = T // n
    q, k, v = (x.view(B, n, C, H, -1) for x in (q, k, v_new))
    g = g.view(B, n, C, H)
    mask = torch.ones(C, C, dtype=torch.bool, device=q.device).tril()
    decay = torch.exp(g[:, :, :, None] - g[:, :, None]) * mask[:, :, None]
    inter = torch.einsum("bnihd,bnhde,bnih->bnihe", q, h, g.exp())
    if FUSED:
        intra = torch.einsum("bnihd,bnjhd,bnijh,bnjhe->bnihe", q, k, decay, v)
    else:
        scores = torch.einsum("bnihd,bnjhd->bnijh", q, k)
        intra = torch.einsum("bnijh,bnjhe->bnihe", scores * decay, v)
    return ((inter + intra) * K**-0.5).reshape(v_new.shape).contiguous()
