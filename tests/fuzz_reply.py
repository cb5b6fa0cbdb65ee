"""Damaged and hostile replies: none may raise, hang, or be read as half a distribution.

``python -m tests.fuzz_reply --n 100000``
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np
from tqdm import tqdm

from kfs.forecast.reply import read_reply
from kfs.speedup import N_BINS
from tests.replies import answers, no_answers

_BITS = [
    "{", "}", "[", "]", '"', "'", ":", ",", "0.1", "-1", "1e999", "NaN", "null", "true", "bin", "%", "\\", "\n",
    "</think>", "<think>", "<|channel|>final<|message|>",
    "<|end|>", "probabilities", "```", "\u202e", "\x00", "\ud800", "é", "8", "1:", "| 1 |", "//", "{" * 50, "[" * 50,
]  # fmt: skip


def damaged(text: str, other: str, rng: np.random.Generator) -> str:
    """A text after a few cuts, swaps, insertions and splices."""
    for _ in range(int(rng.integers(1, 6))):
        at, to = sorted(int(x) for x in rng.integers(0, len(text) + 1, 2))
        kind = int(rng.integers(5))
        if kind == 0:
            text = text[:at] + text[min(to, at + 40) :]
        elif kind == 1:
            text = text[:at] + _BITS[int(rng.integers(len(_BITS)))] + text[at:]
        elif kind == 2:
            text = text[:at]
        elif kind == 3:
            text = text[:to] + other[: int(rng.integers(len(other) + 1))] + text[to:]
        else:
            text = text[:at] + "".join(map(chr, rng.integers(1, 0x2FFF, 8))) + text[at:]
    return text


def fault(text: str, tool_arguments: tuple[str, ...] = ()) -> str | None:
    """What is wrong with how a text was read; None if nothing is."""
    try:
        reply = read_reply(text, tool_arguments)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    if reply.error is not None:
        return None if reply.probabilities is None and reply.error else "an error and a distribution"
    p = reply.probabilities
    right = len(p) == N_BINS and min(p) >= 0 and math.isclose(sum(p), 1, abs_tol=1e-9) and 0.5 <= reply.raw_sum <= 1.5
    return None if right and reply.stated_bin in (None, *range(1, N_BINS + 1)) else f"read as {reply}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="texts (default 100000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    rng = np.random.default_rng(options.seed)
    texts = [text for _, text, _ in answers(500, rng)] + [text for _, text in no_answers(100)]
    begin, slowest, found = time.perf_counter(), 0.0, []
    for i in tqdm(range(options.n), desc="fuzz"):
        first, other = (texts[int(j)] for j in rng.integers(len(texts), size=2))
        text = damaged(first, other, rng)
        start = time.perf_counter()
        wrong = fault(text, (other,) if i % 8 == 0 else ())
        slowest = max(slowest, time.perf_counter() - start)
        if wrong is not None:
            found.append((wrong, text))
    print(f"{options.n} texts in {time.perf_counter() - begin:.1f} s, the slowest {1e3 * slowest:.0f} ms; {len(found)} faults")
    for wrong, text in found[:5]:
        print(f"{wrong}\n    {text[:500]!r}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
