import torch


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    n = h.shape[1]
    C = T // n

    def chunks(x):
        return x.reshape(B, n, C, H, -1).permute(0, 1, 3, 2, 4).contiguous()

    q, k, v, g = chunks(q), chunks(k), chunks(v_new), chunks(g)
    rows = torch.arange(C, device=q.device).view(C, 1)
    visible = rows >= rows.T
    gap = torch.where(visible, g - g.transpose(-1, -2), torch.full_like(g, float("-inf")))
    scores = torch.matmul(q, k.transpose(-1, -2).contiguous())
    scores = scores * K**-0.5
    scores = scores * torch.exp(gap)
    scores = torch.where(visible, scores, torch.zeros_like(scores))
    inter = torch.matmul(q * K**-0.5, h)
    inter = inter * torch.exp(g)
    o = inter + torch.matmul(scores, v)
    return o.permute(0, 1, 3, 2, 4).contiguous().view(v_new.shape)
