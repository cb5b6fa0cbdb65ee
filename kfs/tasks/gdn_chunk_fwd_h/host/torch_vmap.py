import torch

CHUNK = 64


def one_step(state, k, w, u, g):
    v = u - w @ state
    fall = (g[-1] - g).exp().unsqueeze(1)
    return v, g[-1].exp() * state + k.T @ (v * fall)


step = torch.vmap(torch.vmap(one_step, in_dims=(0, 1, 1, 1, 1), out_dims=(1, 0)))


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    state = torch.zeros(B, H, K, u.shape[-1])
    states, values = [], []
    for start in range(0, T, CHUNK):
        s = slice(start, start + CHUNK)
        states.append(state)
        v, state = step(state, k[:, s], w[:, s], u[:, s], g[:, s])
        values.append(v)
    return torch.stack(states, 1).contiguous(), torch.cat(values, 1).contiguous()
