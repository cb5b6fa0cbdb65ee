import torch.nn.functional as F

DEPTH = 4  # variants: 1, 16


def kernel(x, w, bias):
    z = bias.expand(x.shape[0], -1).clone()
    for start in range(0, x.shape[1], DEPTH):
        z.addmm_(x[:, start : start + DEPTH], w[start : start + DEPTH])
    return F.gelu(z)
