import torch

CHUNK = 64
GROUP = 8  # variants: 16, 32


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    h, v_new = torch.empty(B, n, H, K, V), torch.empty_like(u)
    state = torch.zeros(B, H, K, V)
    for c in range(n):
        h[:, c] = state
        last = g[:, (c + 1) * CHUNK - 1].view(B, H, 1, 1)
        following = state * last.exp()
        for t in range(c * CHUNK, (c + 1) * CHUNK, GROUP):
            s = slice(t, t + GROUP)
            kt, wt, ut, gt = (x[:, s].transpose(1, 2) for x in (k, w, u, g.unsqueeze(-1)))
            v = ut - wt @ state
            v_new[:, s] = v.transpose(1, 2)
            following += (kt * (last - gt).exp()).mT @ v
        state = following
    return h, v_new
