import torch


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    n, V = T // 64, u.shape[-1]
    kc, wc, uc, gc = (x.reshape(B, n, 64, H, -1).unbind(1) for x in (k, w, u, g))
    state = torch.zeros(B, H, K, V, device=k.device)
    states, values = [], []
    for c in range(n):
        states.append(state)
        values.append(uc[c] - torch.einsum("bthk,bhkv->bthv", wc[c], state))
        last = gc[c][:, -1:]
        scaled = values[-1] * (last - gc[c]).exp()
        state = state * last.exp().transpose(1, 2) + torch.einsum("bthk,bthv->bhkv", kc[c], scaled)
    return torch.stack(states, 1), torch.cat(values, 1)
