import torch


def kernel(x):
    columns = x.t().contiguous()
    out = torch.empty_like(columns)
    total = torch.zeros(x.shape[0], dtype=torch.float64)
    for i in range(x.shape[1]):
        out[i] = total.add_(columns[i])
    return out.t().contiguous()
