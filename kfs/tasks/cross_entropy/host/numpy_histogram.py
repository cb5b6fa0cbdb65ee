import numpy as np
import torch


def kernel(logits, targets):
    codes = logits.view(torch.int16).numpy().view(np.uint16)
    value = (np.arange(65536, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    loss = np.empty(codes.shape[0], np.float32)
    grad = np.empty(codes.shape, np.float32)
    table = np.empty(65536, np.float32)
    for r, target in enumerate(targets.tolist()):
        count = np.bincount(codes[r])
        seen = np.flatnonzero(count)
        peak = value[seen].max()
        e = np.exp(value[seen] - peak)
        total = np.dot(count[seen], e)
        loss[r] = np.log(total) + peak - value[codes[r, target]]
        table[seen] = e / total
        np.take(table, codes[r], out=grad[r])
        grad[r, target] -= 1
    return torch.from_numpy(loss), torch.from_numpy(grad).bfloat16()
