import torch
import torch.nn.functional as F


def kernel(logits, targets):
    x = logits.float()
    one_hot = F.one_hot(targets, x.shape[1]).float()
    log_p = torch.log_softmax(x, dim=1)
    loss = -(one_hot * log_p).sum(dim=1)
    grad = torch.exp(log_p) - one_hot
    return loss, grad.bfloat16()
