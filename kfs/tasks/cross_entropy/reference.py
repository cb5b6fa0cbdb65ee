import torch


def kernel(logits, targets):
    log_p = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    index = targets.unsqueeze(-1)
    loss = -log_p.gather(-1, index).squeeze(-1)
    grad = log_p.exp()
    grad.scatter_add_(-1, index, torch.full_like(index, -1, dtype=torch.float32))
    return loss, grad.bfloat16()
