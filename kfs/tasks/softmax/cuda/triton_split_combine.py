import torch
import triton
import triton.language as tl

CHUNK = 4096  # variants: 1024, 2048


@triton.jit
def chunk_stats(x, peaks, totals, cols, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    v = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    peak = tl.max(v, axis=0)
    slot = row * tl.num_programs(1) + chunk
    tl.store(peaks + slot, peak)
    tl.store(totals + slot, tl.sum(tl.exp(v - peak), axis=0))


@triton.jit
def chunk_apply(x, y, peaks, totals, cols, CHUNK: tl.constexpr, PARTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    parts = tl.num_programs(1)
    part = tl.arange(0, PARTS)
    m = tl.load(peaks + row * parts + part, mask=part < parts, other=-float("inf"))
    s = tl.load(totals + row * parts + part, mask=part < parts, other=0.0)
    peak = tl.max(m, axis=0)
    total = tl.sum(s * tl.exp(m - peak), axis=0)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    v = tl.load(x + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y + row * cols + at, tl.exp(v - peak) / total, mask=at < cols)


def kernel(x):
    rows, cols = x.shape
    parts = triton.cdiv(cols, CHUNK)
    y = torch.empty_like(x)
    peaks = x.new_empty(rows, parts)
    totals = x.new_empty(rows, parts)
    chunk_stats[(rows, parts)](x, peaks, totals, cols, CHUNK=CHUNK)
    chunk_apply[(rows, parts)](x, y, peaks, totals, cols, CHUNK=CHUNK, PARTS=triton.next_power_of_2(parts))
    return y
