import torch


def kernel(k, v, beta, A, g):
    B, T, H, C = A.shape
    k64, v64, beta64, A64, g64 = (x.to(torch.float64) for x in (k, v, beta, A, g))

    def chunks(x):
        return x.reshape(B, T // C, C, H, -1).permute(0, 1, 3, 2, 4)

    w = chunks(A64) @ chunks(k64 * (beta64 * g64.exp()).unsqueeze(-1))
    u = chunks(A64) @ chunks(v64 * beta64.unsqueeze(-1))
    w = w.permute(0, 1, 3, 2, 4).reshape(k.shape)
    u = u.permute(0, 1, 3, 2, 4).reshape(v.shape)
    return w.to(torch.float32), u.to(torch.float32)
