import torch
import torch.nn.functional as F

PATTERN = "mk,kn->mn"  # variants: "mk,kn->nm"


def kernel(x, w, bias):
    z = torch.einsum(PATTERN, x, w)
    if PATTERN.endswith("nm"):
        z = z.t()
    return F.gelu((z + bias).contiguous())
