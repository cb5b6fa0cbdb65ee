import torch

TRIANGLE = True  # variants: False


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    n = h.shape[1]
    C = T // n
    q, k, v = (x.view(B, n, C, H, -1).transpose(2, 3).flatten(0, 2) for x in (q, k, v_new))
    g = g.view(B, n, C, H).transpose(2, 3).flatten(0, 2).unsqueeze(1)
    o = torch.bmm(q * (g.exp() * K**-0.5).mT, h.flatten(0, 2))
    for i in range(C):
        stop = i + 1 if TRIANGLE else C
        scores = torch.bmm(q[:, i : i + 1], k[:, :stop].mT)
        scores = scores * (g[:, :, i : i + 1] - g[:, :, :stop]).exp() * K**-0.5
        if not TRIANGLE:
            scores[:, :, i + 1 :] = 0
        o[:, i : i + 1].baddbmm_(scores, v[:, :stop])
    return o.view(B, n, H, C, -1).transpose(2, 3).reshape(v_new.shape)
