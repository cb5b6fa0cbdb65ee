import torch

CHUNK = 64


def kernel(k, w, u, g):
    B, _, H, K = k.shape
    heads = [x.permute(0, 2, 1, 3).contiguous() for x in (k, w, u)]
    gates = g.permute(0, 2, 1).contiguous()
    state = torch.zeros(B, H, K, u.shape[-1])
    states, values = [], []
    for kc, wc, uc, gc in zip(*(x.split(CHUNK, dim=2) for x in (*heads, gates)), strict=True):
        states.append(state.clone())
        v = uc - torch.matmul(wc.contiguous(), state)
        values.append(v.permute(0, 2, 1, 3).contiguous())
        fall = torch.exp(gc[:, :, -1:] - gc)
        decayed = v * fall.unsqueeze(-1)
        update = torch.matmul(kc.transpose(2, 3).contiguous(), decayed)
        state = state * torch.exp(gc[:, :, -1]).unsqueeze(-1).unsqueeze(-1)
        state = state + update
    return torch.stack(states, dim=1), torch.cat(values, dim=1)
