def kernel(x):
    shifted = x - x.amax(dim=1, keepdim=True)
    e = shifted.exp()
    return e / e.sum(dim=1, keepdim=True)
