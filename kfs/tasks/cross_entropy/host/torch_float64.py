import torch


def kernel(logits, targets):
    x = logits.double()
    log_p = torch.log_softmax(x, dim=1)
    rows = torch.arange(x.shape[0])
    loss = -log_p[rows, targets]
    grad = log_p.exp()
    grad[rows, targets] -= 1.0
    return loss.float(), grad.bfloat16()
