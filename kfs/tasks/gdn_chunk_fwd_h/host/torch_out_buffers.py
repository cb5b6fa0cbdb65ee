import torch

CHUNK = 64


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    gates = g.view(B, n, CHUNK, H).permute(1, 0, 3, 2)
    keep = gates[..., -1:].exp().reshape(n, B * H, 1, 1)
    fall = (gates[..., -1:] - gates).exp_().reshape(n, B * H, CHUNK, 1)
    kc, wc, uc = (x.view(B, n, CHUNK, H, -1).permute(1, 0, 3, 2, 4).reshape(n, B * H, CHUNK, -1).unbind() for x in (k, w, u))
    h = torch.zeros(n, B * H, K, V)
    v_new = torch.empty(n, B * H, CHUNK, V)
    scaled = torch.empty(B * H, CHUNK, V)
    for c, (state, v, f, a) in enumerate(zip(h.unbind(), v_new.unbind(), fall.unbind(), keep.unbind(), strict=True)):
        torch.baddbmm(uc[c], wc[c], state, alpha=-1, out=v)
        if c + 1 < n:
            torch.mul(v, f, out=scaled)
            torch.bmm(kc[c].mT, scaled, out=h[c + 1])
            h[c + 1].addcmul_(state, a)
    h = h.view(n, B, H, K, V).transpose(0, 1).contiguous()
    return h, v_new.view(n, B, H, CHUNK, V).permute(1, 0, 3, 2, 4).reshape(u.shape)
