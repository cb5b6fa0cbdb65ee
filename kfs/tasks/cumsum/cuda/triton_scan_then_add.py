import torch
import triton
import triton.language as tl

CHUNK = 1024


@triton.jit
def local_scan(x, y, sums, cols, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    v = tl.load(x + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y + row * cols + at, tl.cumsum(v, axis=0), mask=at < cols)
    tl.store(sums + row * tl.num_programs(1) + chunk, tl.sum(v, axis=0))


@triton.jit
def scan_sums(sums, parts, PARTS: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * parts
    part = tl.arange(0, PARTS)
    v = tl.load(sums + start + part, mask=part < parts, other=0.0)
    tl.store(sums + start + part, tl.cumsum(v, axis=0), mask=part < parts)


@triton.jit
def add_offsets(y, sums, cols, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    before = tl.load(sums + row * tl.num_programs(1) + chunk - 1, mask=chunk > 0, other=0.0)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    v = tl.load(y + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y + row * cols + at, v + before, mask=at < cols)


def kernel(x):
    rows, cols = x.shape
    parts = triton.cdiv(cols, CHUNK)
    y = torch.empty_like(x)
    sums = x.new_empty(rows, parts)
    local_scan[(rows, parts)](x, y, sums, cols, CHUNK=CHUNK)
    scan_sums[(rows,)](sums, parts, PARTS=triton.next_power_of_2(parts))
    add_offsets[(rows, parts)](y, sums, cols, CHUNK=CHUNK)
    return y
