import torch

CHUNK = 64
DECAY_INSIDE = False  # variants: True


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n = T // CHUNK
    k, w, u = (x.view(B, n, CHUNK, H, -1) for x in (k, w, u))
    g = g.view(B, n, CHUNK, H)
    state = torch.zeros(B, H, K, u.shape[-1])
    states, values = [], []
    for c in range(n):
        states.append(state)
        v = u[:, c] - torch.einsum("bthk,bhkv->bthv", w[:, c], state)
        values.append(v)
        last = g[:, c, -1]
        fall = torch.exp(last.unsqueeze(1) - g[:, c])
        if DECAY_INSIDE:
            update = torch.einsum("bthk,bth,bthv->bhkv", k[:, c], fall, v)
        else:
            update = torch.einsum("bthk,bthv->bhkv", k[:, c], v * fall.unsqueeze(-1))
        state = torch.exp(last)[..., None, None] * state + update
    return torch.stack(states, 1), torch.cat(values, 1)
