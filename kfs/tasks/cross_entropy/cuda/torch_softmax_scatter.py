import torch
import torch.nn.functional as F


def kernel(logits, targets):
    loss = F.cross_entropy(logits.float(), targets, reduction="none")
    p = torch.softmax(logits, dim=1, dtype=torch.float32)
    index = targets[:, None]
    p.scatter_add_(1, index, p.new_full(index.shape, -1.0))
    return loss, p.bfloat16()
