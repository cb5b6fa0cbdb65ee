import torch

CHUNK = 64


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    gc = g.view(B, n, CHUNK, H)
    last = gc[:, :, -1:]
    keys = k.view(B, n, CHUNK, H, K) * (last - gc).exp().unsqueeze(-1)
    keys = keys.permute(0, 1, 3, 4, 2)
    keep = last.exp().view(B, n, H, 1, 1)
    wc = w.view(B, n, CHUNK, H, K).transpose(2, 3)
    uc = u.view(B, n, CHUNK, H, V).transpose(2, 3)
    h = torch.zeros(B, n, H, K, V)
    v_new = torch.empty(B, n, CHUNK, H, V)
    for c in range(n):
        v = torch.sub(uc[:, c], wc[:, c] @ h[:, c])
        v_new[:, c] = v.transpose(1, 2)
        if c + 1 < n:
            torch.addcmul(keys[:, c] @ v, h[:, c], keep[:, c], out=h[:, c + 1])
    return h, v_new.view(u.shape)
