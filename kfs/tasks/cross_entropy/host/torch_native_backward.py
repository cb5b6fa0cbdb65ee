import torch


def kernel(logits, targets):
    log_p = torch.log_softmax(logits.float(), dim=1)
    index = targets.unsqueeze(1)
    loss = -log_p.gather(1, index)
    upstream = torch.zeros_like(log_p).scatter_(1, index, -1.0)
    grad = torch.ops.aten._log_softmax_backward_data(upstream, log_p, 1, torch.float32)
    return loss.squeeze(1), grad.bfloat16()
