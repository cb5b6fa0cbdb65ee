import torch


def kernel(logits, targets):
    p = torch.softmax(logits.float(), dim=-1)
    rows = torch.arange(logits.shape[0])
    loss = -torch.log(p[rows, targets])
    p[rows, targets] -= 1.0
    return loss, p.to(torch.bfloat16)
