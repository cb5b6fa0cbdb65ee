def kernel(x):
    out = x.clone()
    shift = 1
    while shift < x.shape[-1]:
        following = out.clone()
        following[:, shift:] += out[:, :-shift]
        out = following
        shift *= 2
    return out
