import torch


def kernel(q, k, v_new, h, g):
    B, T, H, K = q.shape
    V, NT = v_new.shape[-1], h.shape[1]
    C = T // NT
    qc, kc, vc = (x.view(B, NT, C, H, -1).permute(0, 1, 3, 2, 4).reshape(B * NT * H, C, -1) for x in (q, k, v_new))
    gc = g.view(B, NT, C, H).transpose(2, 3).reshape(B * NT * H, C, 1)
    scores = torch.bmm(qc, kc.mT).mul_((gc - gc.mT).exp_()).tril_()
    left = torch.cat((qc * gc.exp(), scores), dim=-1)
    right = torch.cat((h.view(-1, K, V), vc), dim=-2)
    o = torch.bmm(left, right).mul_(K**-0.5)
    return o.view(B, NT, H, C, V).transpose(2, 3).reshape(B, T, H, V).contiguous()
