import torch
import torch.nn.functional as F

IN_PLACE = True  # variants: False


def kernel(x, w, bias):
    z = bias.repeat(x.shape[0], 1)
    for k in range(x.shape[1]):
        if IN_PLACE:
            z.addcmul_(x[:, k, None], w[k])
        else:
            z = z + torch.outer(x[:, k], w[k])
    return F.gelu(z)
