import torch
import torch.nn.functional as F


def kernel(logits, targets):
    x = logits.float()
    width = 1 << (x.shape[1] - 1).bit_length()
    level = F.pad(x, (0, width - x.shape[1]), value=-1e30)
    while width > 1:
        width //= 2
        level = torch.logaddexp(level[:, :width], level[:, width:])
    loss = level - x.gather(1, targets[:, None])
    grad = torch.exp(x - level)
    grad.scatter_add_(1, targets[:, None], torch.full_like(loss, -1.0))
    return loss.squeeze(1), grad.bfloat16()
