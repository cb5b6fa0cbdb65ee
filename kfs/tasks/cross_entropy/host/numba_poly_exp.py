import math

import numpy as np
import torch
from numba import njit

FASTMATH = True  # variants: False
f32, u32, i32 = np.float32, np.uint32, np.int32


@njit(fastmath=FASTMATH)
def fused_rows(codes, targets, loss, grad):
    rows, vocab = codes.shape
    bits, power = np.empty(vocab, np.uint32), np.empty(vocab, np.int32)
    x, two = bits.view(np.float32), power.view(np.float32)
    for r in range(rows):
        peak = f32(-3e38)
        for v in range(vocab):
            bits[v] = u32(codes[r, v]) << u32(16)
        for v in range(vocab):
            peak = max(peak, x[v])
        picked = x[targets[r]]
        for v in range(vocab):
            y = max((x[v] - peak) * f32(1.442695041), f32(-126.0))
            n = np.floor(y)
            power[v] = (i32(n) + i32(127)) << i32(23)
            z = y - n
            x[v] = f32(1.0) + z * (f32(0.6931472) + z * (f32(0.2402265) + z * (f32(0.0556480) + z * f32(0.0096183))))
        total = f32(0.0)
        for v in range(vocab):
            x[v] *= two[v]
            total += x[v]
        loss[r] = math.log(total) + peak - picked
        scale = f32(1.0) / total
        for v in range(vocab):
            x[v] *= scale
        x[targets[r]] -= f32(1.0)
        for v in range(vocab):
            grad[r, v] = (bits[v] + u32(0x7FFF) + ((bits[v] >> u32(16)) & u32(1))) >> u32(16)


def kernel(logits, targets):
    loss, grad = torch.empty(logits.shape[0]), torch.empty_like(logits)
    codes, out = (t.view(torch.int16).numpy().view(np.uint16) for t in (logits, grad))
    fused_rows(codes, targets.numpy(), loss.numpy(), out)
    return loss, grad
