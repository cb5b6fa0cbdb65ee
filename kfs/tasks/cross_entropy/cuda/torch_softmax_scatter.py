import torch


def kernel(logits, targets):
    p = torch.softmax(logits, dim=1, dtype=torch.float32)
    index = targets[:, None]
    loss = -p.gather(1, index).log_().squeeze(1)
    p.scatter_add_(1, index, p.new_full(index.shape, -1.0))
    return loss, p.bfloat16()
