import math

import torch

STYLE = "divide"  # variants: "scale", "erfc", "ndtr"


def kernel(x, w, bias):
    z = torch.matmul(x, w) + bias
    if STYLE == "divide":
        return z * 0.5 * (1.0 + torch.erf(z / math.sqrt(2.0)))
    if STYLE == "scale":
        half = 0.5 * z
        return half + half * torch.erf(math.sqrt(0.5) * z)
    if STYLE == "erfc":
        return 0.5 * z * torch.erfc(-z * math.sqrt(0.5))
    return z * torch.special.ndtr(z)
