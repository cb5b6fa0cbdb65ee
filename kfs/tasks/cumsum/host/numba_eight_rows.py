import torch
from numba import njit


@njit
def cumsum(x, out):
    rows, cols = x.shape
    for start in range(0, rows, 8):
        r = min(start, max(rows - 8, 0))
        n = rows - 1
        r1, r2, r3, r4 = min(r + 1, n), min(r + 2, n), min(r + 3, n), min(r + 4, n)
        r5, r6, r7 = min(r + 5, n), min(r + 6, n), min(r + 7, n)
        t0, t1, t2, t3, t4, t5, t6, t7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for c in range(cols):
            t0 += x[r, c]
            t1 += x[r1, c]
            t2 += x[r2, c]
            t3 += x[r3, c]
            t4 += x[r4, c]
            t5 += x[r5, c]
            t6 += x[r6, c]
            t7 += x[r7, c]
            out[r, c], out[r1, c], out[r2, c], out[r3, c] = t0, t1, t2, t3
            out[r4, c], out[r5, c], out[r6, c], out[r7, c] = t4, t5, t6, t7


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
