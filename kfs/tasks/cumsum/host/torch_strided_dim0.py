def kernel(x):
    return x.t().cumsum(dim=0).t().contiguous()
