def kernel(k, v, beta, A, g):
    C = A.shape[-1]
    kc, vc, ac = (x.unflatten(1, (-1, C)).transpose(2, 3) for x in (k, v, A))
    rate, decay = (x.unflatten(1, (-1, C)).transpose(2, 3) for x in (beta, g.exp()))
    a = (ac * rate.unsqueeze(-2)).unsqueeze(-1)
    u = (a * vc.unsqueeze(-3)).sum(-2)
    w = (a * (kc * decay.unsqueeze(-1)).unsqueeze(-3)).sum(-2)
    return w.transpose(2, 3).reshape(k.shape).contiguous(), u.transpose(2, 3).reshape(v.shape).contiguous()
