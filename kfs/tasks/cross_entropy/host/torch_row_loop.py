import torch

ROWS = 4  # variants: 16


def kernel(logits, targets):
    losses, grads = [], []
    for x, t in zip(logits.split(ROWS), targets.split(ROWS), strict=True):
        x = x.float()
        lse = torch.logsumexp(x, dim=1)
        picked = x.gather(1, t[:, None]).squeeze(1)
        grad = torch.exp(x - lse[:, None])
        grad[torch.arange(len(t)), t] -= 1.0
        losses.append(lse - picked)
        grads.append(grad.bfloat16())
    return torch.cat(losses), torch.cat(grads)
