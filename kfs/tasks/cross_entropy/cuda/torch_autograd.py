import torch
import torch.nn.functional as F


@torch.inference_mode(False)
@torch.enable_grad()
def kernel(logits, targets):
    x = logits.detach().clone().float().requires_grad_()
    loss = F.cross_entropy(x, targets.clone(), reduction="none")
    (grad,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach(), grad.bfloat16()
