import torch

CHUNK = 64


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n = T // CHUNK
    k, w, u, g = (x.to(torch.float64).reshape(B, n, CHUNK, H, -1).transpose(2, 3) for x in (k, w, u, g))
    state = torch.zeros(B, H, K, u.shape[-1], dtype=torch.float64)
    states, values = [], []
    for c in range(n):
        states.append(state)
        v = u[:, c] - w[:, c] @ state
        values.append(v)
        last = g[:, c, :, -1:]
        state = state * last.exp() + k[:, c].transpose(-1, -2) @ (v * (last - g[:, c]).exp())
    v_new = torch.stack(values, 1).transpose(2, 3).reshape(B, T, H, -1)
    return torch.stack(states, 1).float(), v_new.float()
