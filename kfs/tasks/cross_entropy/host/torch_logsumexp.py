import torch


def kernel(logits, targets):
    x = logits.float()
    lse = torch.logsumexp(x, dim=1, keepdim=True)
    index = targets[:, None]
    loss = lse - x.gather(1, index)
    grad = torch.exp(x - lse)
    grad.scatter_add_(1, index, -torch.ones_like(loss))
    return loss.squeeze(1), grad.bfloat16()
