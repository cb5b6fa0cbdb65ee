def kernel(q, k, v_new, h, g):
    scale = q.shape[-1] ** -0.5
    C = q.shape[1] // h.shape[1]

    def chunks(x):
        return x.unflatten(1, (-1, C)).transpose(2, 3)

    q, k, v, g = chunks(q), chunks(k), chunks(v_new), chunks(g)
    inter = (q @ h) * g.exp().unsqueeze(-1)
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).exp()
    intra = (q @ k.mT * decay).tril() @ v
    return (scale * (inter + intra)).transpose(2, 3).reshape(v_new.shape)
