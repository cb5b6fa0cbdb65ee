import torch

CHUNK = 64
BLOCK = 16  # variants: 4, 8, 32


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    kc, wc, uc = (x.view(B, n, CHUNK, H, -1).transpose(2, 3) for x in (k, w, u))
    gc = g.view(B, n, CHUNK, H, 1).transpose(2, 3)
    last = gc[..., -1:, :]
    keys, keep = (kc * (last - gc).exp()).mT, last.exp()
    h, v_new = torch.empty(B, n, H, K, V), torch.empty_like(u)
    vc = v_new.view(B, n, CHUNK, H, V).transpose(2, 3)
    for first in range(0, V, BLOCK):
        cols = slice(first, first + BLOCK)
        state = torch.zeros(B, H, K, min(BLOCK, V - first))
        for c in range(n):
            h[:, c, :, :, cols] = state
            v = uc[:, c, :, :, cols] - wc[:, c] @ state
            vc[:, c, :, :, cols] = v
            state = state * keep[:, c] + keys[:, c] @ v
    return h, v_new
