import torch.nn.functional as F


def kernel(x, weight):
    return F.rms_norm(x, (x.shape[1],), weight, eps=1e-6)
