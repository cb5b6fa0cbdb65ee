import torch.nn.functional as F

COPY_WEIGHT = False  # variants: True


def kernel(x, w, bias):
    weight = w.t().contiguous() if COPY_WEIGHT else w.t()
    return F.gelu(F.linear(x, weight, bias))
