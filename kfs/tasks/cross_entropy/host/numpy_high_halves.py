import numpy as np
import torch


def kernel(logits, targets):
    halves = np.zeros((*logits.shape, 2), np.uint16)
    halves[:, :, 1] = logits.view(torch.int16).numpy().view(np.uint16)
    x = halves.view(np.float32)[:, :, 0]
    peak = x.max(axis=1)
    e = np.exp(x - peak[:, None])
    total = e.sum(axis=1)
    rows = np.arange(len(total))
    loss = np.log(total) + peak - x[rows, targets.numpy()]
    e /= total[:, None]
    e[rows, targets.numpy()] -= 1
    return torch.from_numpy(loss), torch.from_numpy(e).bfloat16()
