import numpy as np
import torch


def kernel(logits, targets):
    codes = logits.view(torch.int16).numpy().view(np.uint16)
    seen = np.zeros(65536, np.bool_)
    seen[codes] = True
    used = np.flatnonzero(seen)
    values = (used.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    peak = values.max()
    table = np.zeros(65536)
    table[used] = np.exp(values - peak)
    e = table[codes]
    total = e.sum(axis=1, keepdims=True)
    rows = np.arange(len(total))
    loss = np.log(total[:, 0]) + peak - logits[rows, targets].double().numpy()
    e /= total
    e[rows, targets.numpy()] -= 1
    return torch.from_numpy(loss.astype(np.float32)), torch.from_numpy(e).bfloat16()
