import torch


def kernel(logits, targets):
    log_p = torch.log_softmax(logits.float(), dim=1)
    upstream = torch.zeros_like(log_p)
    upstream.scatter_(1, targets[:, None], -1.0)
    loss = (upstream * log_p).sum(dim=1)
    grad = upstream - log_p.exp() * upstream.sum(dim=1, keepdim=True)
    return loss, grad.bfloat16()
