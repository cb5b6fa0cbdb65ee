import torch


def kernel(logits, targets):
    columns = logits.t().contiguous().float()
    log_p = torch.log_softmax(columns, dim=0)
    index = targets.unsqueeze(0)
    loss = -log_p.gather(0, index).squeeze(0)
    grad = log_p.exp()
    grad.scatter_add_(0, index, -torch.ones(index.shape))
    return loss, grad.bfloat16().t().contiguous()
