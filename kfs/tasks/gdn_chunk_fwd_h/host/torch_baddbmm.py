import torch

CHUNK = 64
INPLACE = True  # variants: False


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]

    def chunks(x):
        return x.view(B, n, CHUNK, H, -1).permute(1, 0, 3, 2, 4).reshape(n, B * H, CHUNK, -1)

    gc = chunks(g)
    last = gc[:, :, -1:]
    keys = (chunks(k) * (last - gc).exp()).mT
    keep = last.exp()
    wc, v = chunks(w), chunks(u)
    h = u.new_zeros(n, B * H, K, V)
    if INPLACE:
        v = v.clone()
        for c in range(n):
            v[c].baddbmm_(wc[c], h[c], alpha=-1)
            if c + 1 < n:
                torch.mul(h[c], keep[c], out=h[c + 1])
                h[c + 1].baddbmm_(keys[c], v[c])
    else:
        rows, states = [], [h[0]]
        for c in range(n):
            rows.append(torch.baddbmm(v[c], wc[c], states[c], alpha=-1))
            states.append(torch.baddbmm(states[c] * keep[c], keys[c], rows[c]))
        v, h = torch.stack(rows), torch.stack(states[:n])
    v = v.view(n, B, H, CHUNK, V).permute(1, 0, 3, 2, 4).reshape(u.shape)
    return h.view(n, B, H, K, V).transpose(0, 1).contiguous(), v.contiguous()
