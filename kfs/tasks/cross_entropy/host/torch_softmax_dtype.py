import torch


def kernel(logits, targets):
    p = torch.softmax(logits, dim=1, dtype=torch.float32)
    index = targets.unsqueeze(1)
    picked = p.gather(1, index)
    grad = p.to(torch.bfloat16)
    grad.scatter_(1, index, (picked - 1.0).to(torch.bfloat16))
    return picked.log_().neg_().squeeze(1), grad
