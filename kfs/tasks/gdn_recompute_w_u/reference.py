def kernel(k, v, beta, A, g):
    C = A.shape[-1]

    def chunks(x):
        return x.unflatten(1, (-1, C)).transpose(2, 3)

    kc, vc, Ac = chunks(k), chunks(v), chunks(A)
    rate, decay = chunks(beta), chunks(g).exp()
    w = Ac @ (kc * (rate * decay).unsqueeze(-1))
    u = Ac @ (vc * rate.unsqueeze(-1))
    return w.transpose(2, 3).reshape(k.shape), u.transpose(2, 3).reshape(v.shape)
