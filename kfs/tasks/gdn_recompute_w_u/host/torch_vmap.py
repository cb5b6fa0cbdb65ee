import torch


def one_chunk(k, v, beta, a, g):
    return a @ (k * (beta * g.exp()).unsqueeze(-1)), a @ (v * beta.unsqueeze(-1))


def kernel(k, v, beta, A, g):
    C = A.shape[-1]
    over_heads = torch.vmap(one_chunk, in_dims=1, out_dims=1)
    over_chunks = torch.vmap(over_heads)
    w, u = over_chunks(*(x.reshape(-1, C, *x.shape[2:]) for x in (k, v, beta, A, g)))
    return w.reshape(k.shape).contiguous(), u.reshape(v.shape).contiguous()
