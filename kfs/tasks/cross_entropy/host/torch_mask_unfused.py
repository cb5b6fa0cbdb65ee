import torch


def kernel(logits, targets):
    x = logits.float()
    hit = torch.arange(x.shape[1])[None, :] == targets[:, None]
    shifted = x - x.max(dim=1, keepdim=True).values
    e = torch.exp(shifted)
    total = e.sum(dim=1, keepdim=True)
    log_p = shifted - torch.log(total)
    loss = torch.where(hit, -log_p, torch.zeros_like(log_p)).sum(dim=1)
    p = e / total
    grad = torch.where(hit, p - 1.0, p)
    return loss, grad.to(torch.bfloat16)
