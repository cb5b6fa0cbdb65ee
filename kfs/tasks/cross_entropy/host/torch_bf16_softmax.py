import torch


def kernel(logits, targets):
    grad = torch.softmax(logits, dim=-1)
    index = targets.unsqueeze(1)
    peak = logits.amax(dim=1, keepdim=True).float()
    total = logits.float().sub_(peak).exp_().sum(dim=1, keepdim=True)
    loss = total.log_().add_(peak).sub_(logits.gather(1, index))
    grad.scatter_(1, index, torch.expm1(-loss).to(grad.dtype))
    return loss.squeeze(1), grad
