import torch

CHUNK = 64


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // CHUNK, u.shape[-1]
    kc, wc, uc, gc = (x.unflatten(1, (n, CHUNK)).transpose(2, 3) for x in (k, w, u, g.unsqueeze(-1)))
    last = gc[..., -1:, :]
    fall, keep = (last - gc).exp(), last.exp()
    h = u.new_empty(B, n, H, K, V)
    v_new = torch.empty_like(u)
    vc = v_new.unflatten(1, (n, CHUNK)).transpose(2, 3)
    state = u.new_zeros(B, H, K, V)
    for c in range(n):
        h[:, c] = state
        v = uc[:, c] - wc[:, c] @ state
        vc[:, c] = v
        state = keep[:, c] * state + kc[:, c].mT @ (v * fall[:, c])
    return h, v_new
