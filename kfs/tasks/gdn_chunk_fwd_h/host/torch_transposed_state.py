import torch

CHUNK = 64


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    kc, wc, uc = (x.view(B, n, CHUNK, H, -1).permute(1, 0, 3, 4, 2).contiguous() for x in (k, w, u))
    gc = g.view(B, n, CHUNK, H).permute(1, 0, 3, 2).unsqueeze(-2)
    last = gc[..., -1:]
    fall, keep = (last - gc).exp(), last.exp()
    h, v_new = torch.empty(n, B, H, V, K), torch.empty_like(uc)
    state = torch.zeros(B, H, V, K)
    for c in range(n):
        h[c] = state
        v = torch.sub(uc[c], state @ wc[c], out=v_new[c])
        state = state * keep[c] + (v * fall[c]) @ kc[c].mT
    return h.permute(1, 0, 2, 4, 3).contiguous(), v_new.permute(1, 0, 4, 2, 3).reshape(u.shape)
