import torch


def scan(x):
    cols = x.shape[1]
    if cols == 1:
        return x.clone()
    pairs = scan(x[:, : cols // 2 * 2 : 2] + x[:, 1::2])
    out = torch.empty_like(x)
    out[:, 1::2] = pairs
    out[:, :1] = x[:, :1]
    out[:, 2::2] = pairs[:, : (cols - 1) // 2] + x[:, 2::2]
    return out


def kernel(x):
    return scan(x)
