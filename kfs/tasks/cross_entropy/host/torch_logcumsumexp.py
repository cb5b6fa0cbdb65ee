import torch


def kernel(logits, targets):
    x = logits.float()
    lse = torch.logcumsumexp(x, dim=1)[:, -1:]
    loss = lse - x.gather(1, targets[:, None])
    grad = torch.exp(x - lse)
    grad.scatter_add_(1, targets[:, None], torch.full_like(loss, -1.0))
    return loss.squeeze(1), grad.bfloat16()
