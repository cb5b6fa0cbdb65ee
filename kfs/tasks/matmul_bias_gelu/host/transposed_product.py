import torch
import torch.nn.functional as F

COPY_FIRST = True  # variants: False


def kernel(x, w, bias):
    z = torch.addmm(bias[:, None], w.t(), x.t())
    if COPY_FIRST:
        return F.gelu(z.t().contiguous())
    return F.gelu(z).t().contiguous()
