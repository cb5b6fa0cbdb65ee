import torch
import torch.nn.functional as F


def kernel(logits, targets):
    with torch.inference_mode(False), torch.enable_grad():
        leaf = logits.clone().requires_grad_()
        loss = F.cross_entropy(leaf.float(), targets.clone(), reduction="none")
        (grad,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), grad
