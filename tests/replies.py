"""Replies of known meaning, in the forms that models answer in, and texts that are no answer."""

# ruff: noqa: E501 (a reply is a line)

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from kfs.speedup import N_BINS, NAMES, STUDY_BINS

THOUGHT = (
    "The reference reads the input twice, the candidate once. Suppose it is memory bound: then S is about 2, so at first I would say "
    '{"probabilities": [0, 0, 0, 0, 0, 0, 1, 0], "bin": 7}. But the candidate launches one warp a row, and 33 columns waste lanes. '
    "Rows: 4096, columns: 33, 132 SMs; 1: fast, 2: slow. Bin 5: 50%? "
)


def distribution(rng: np.random.Generator) -> list[float]:
    """Eight shares with two decimals that sum to 1."""
    cuts = np.sort(rng.integers(0, 101, N_BINS - 1))
    shares = np.diff([0, *cuts, 100])
    rng.shuffle(shares)
    return [int(s) / 100 for s in shares]


def _rows(p, bin_key="bin", p_key="p"):
    return [{bin_key: i, p_key: x} for i, x in enumerate(p, start=1)]


def _per_cent(p):
    return [f"{100 * x:.0f}%" for x in p]


def _lines(p, form):
    return "\n".join(form.format(i=i, name=NAMES[i - 1], p=x, c=round(100 * x)) for i, x in enumerate(p, start=1))


def _schema(p, **more):
    return json.dumps({"probabilities": list(p), "bin": int(np.argmax(p)) + 1, "reason": "fewer passes over memory"} | more)


def _call(name, arguments):
    return json.dumps({"name": name, "arguments": arguments})


# Each takes a distribution and gives a reply that states it.
FORMS: dict[str, Callable[[list[float]], str]] = {
    "schema": _schema,
    "schema, indented": lambda p: json.dumps({"probabilities": p, "bin": 5, "reason": 'says "fast"\n{sic}'}, indent=2),
    "bin first": lambda p: json.dumps({"bin": 3, "reason": "a", "probabilities": p}),
    "released columns": lambda p: json.dumps({"predicted_bin": 4, "bin_probabilities": _rows(p)}),
    "rows alone": lambda p: json.dumps(_rows(p, p_key="probability")),
    "rows, shuffled": lambda p: json.dumps({"probabilities": _rows(p)[::-1]}),
    "rows by name": lambda p: json.dumps({"distribution": [{"bin": n, "probability": x} for n, x in zip(NAMES, p, strict=True)]}),
    "keys": lambda p: json.dumps({"probabilities": {str(i): x for i, x in enumerate(p, start=1)}}),
    "keys, bin_k": lambda p: json.dumps({f"bin_{i}": x for i, x in enumerate(p, start=1)} | {"reason": "b"}),
    "keys, Bin k": lambda p: json.dumps({f"Bin {i}": x for i, x in enumerate(p, start=1)}),
    "keys, names": lambda p: json.dumps({"probabilities": dict(zip(NAMES, p, strict=True)), "predicted_bin": NAMES[4]}),
    "keys, numbered names": lambda p: json.dumps({f"{i} {n}": x for i, (n, x) in enumerate(zip(NAMES, p, strict=True), start=1)}),
    "zeros left out": lambda p: json.dumps({"probabilities": {str(i): x for i, x in enumerate(p, start=1) if x}}),
    "percentages": lambda p: json.dumps({"probabilities": [round(100 * x) for x in p]}),
    "percentages, strings": lambda p: json.dumps({"probabilities": _per_cent(p), "bin": "5"}),
    "percentages, keys": lambda p: json.dumps({str(i): x for i, x in enumerate(_per_cent(p), start=1)}),
    "strings": lambda p: json.dumps({"probabilities": [f"{x:.2f}" for x in p]}),
    "sum 1.4": lambda p: json.dumps({"probabilities": [1.4 * x for x in p], "bin": 2}),
    "sum 0.6": lambda p: json.dumps({"probabilities": [0.6 * x for x in p]}),
    "sum 130%": lambda p: json.dumps({"probabilities": [f"{130 * x:.6f}%" for x in p]}),
    "fence": lambda p: f"```json\n{_schema(p)}\n```",
    "fence without language": lambda p: f"Here is my forecast.\n\n```\n{_schema(p)}\n```\nLet me know if you need more.",
    "prose": lambda p: f"I think fewer passes help ({{see below}}). My forecast is {_schema(p)}. I am fairly sure.",
    "trailing comma": lambda p: _schema(p)[:-1] + ",\n}",
    "trailing comma in the list": lambda p: _schema(p).replace("]", ",]", 1),
    "single quotes": lambda p: str({"probabilities": p, "bin": 5}),
    "bare keys": lambda p: f"{{probabilities: {p}, bin: 6}}",
    "comments": lambda p: "{\n  // shares, in order\n" + f'  "probabilities": {p}, // sum to one\n  "bin": 4\n}}',
    "revised": lambda p: f"First guess: {_schema(p[::-1])}\nOn reflection the block is too small. Final: {_schema(p)}",
    "wrapped": lambda p: json.dumps({"forecast": json.loads(_schema(p))}),
    "cut off after it": lambda p: _schema(p, reason="the candidate keeps the row in regis")[:-14],
    "a named list in prose": lambda p: f"**Probabilities:** {p}\n\nMost likely: bin 5.",
    "only a list": lambda p: f"{p}",
    "only a list, fenced": lambda p: f"```json\n{p}\n```",
    "lines": lambda p: "Forecast:\n" + _lines(p, "Bin {i}: {p:.2f}"),
    "lines, per cent": lambda p: _lines(p, "- **Bin {i}** ({name}): {c}%") + "\n\nSo bin 5.",
    "lines, numbered": lambda p: _lines(p, "{i}. {name} - {p:.2f}"),
    "lines, with edges": lambda p: "\n\n".join(
        f"{row['bin']}: {row['interval']} ({row['name']}): {x:.2f}" for row, x in zip(STUDY_BINS.table(), p, strict=True)
    ),
    "table": lambda p: "| bin | name | probability |\n|---|---|---|\n" + _lines(p, "| {i} | {name} | {p:.2f} |"),
    "table, per cent": lambda p: "| Bin | p |\n|:-:|--:|\n" + _lines(p, "| {i} | {c}% |"),
    "Qwen": lambda p: f"<think>\n{THOUGHT * 40}\n</think>\n\n{_schema(p)}",
    "Qwen, opened by the prompt": lambda p: f"{THOUGHT * 10}</think>{_schema(p)}",
    "Qwen, tool": lambda p: f"<think>{THOUGHT}</think>\n<tool_call>\n{_call('forecast', json.loads(_schema(p)))}\n</tool_call>",
    "Qwen coder, tool": lambda p: (
        f"<tool_call>\n<function=forecast>\n<parameter=probabilities>\n{p}\n</parameter>\n<parameter=bin>\n5\n</parameter>\n</function>\n</tool_call>"
    ),
    "gpt-oss": lambda p: (
        f"<|channel|>analysis<|message|>{THOUGHT * 20}<|end|><|start|>assistant<|channel|>final<|message|>{_schema(p)}<|return|>"
    ),
    "gpt-oss, tool": lambda p: (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary to=functions.forecast <|constrain|>json<|message|>{_schema(p)}<|call|>"
    ),
    "tool, arguments a string": lambda p: _call("forecast", _schema(p)),
    "tool, in a list": lambda p: "[TOOL_CALLS] [" + _call("forecast", json.loads(_schema(p))) + "]",
    "tool, function": lambda p: json.dumps(
        {"type": "function", "function": {"name": "forecast", "parameters": json.loads(_schema(p))}}
    ),
    "Llama, tool": lambda p: f"<function=forecast>{_schema(p)}</function>",
    "long prose first": lambda p: f"{THOUGHT * 100}\n\nAnswer:\n{_schema(p)}",
}

_FLAT = [0.1, 0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1]
_TABLE = "\n".join(f"{row['bin']}: {row['interval']} ({row['name']})" for row in STUDY_BINS.table())

# Each takes a number and gives a text that states no distribution.
NO_ANSWERS: dict[str, Callable[[int], str]] = {
    "empty": lambda i: " \n" * i,
    "refusal": lambda i: f"I'm sorry, I can't run kernels, so I cannot forecast number {i}.",
    "a bin alone": lambda i: f"The answer is {1 + i % 8}.",
    "a bin in JSON": lambda i: json.dumps({"bin": 1 + i % 8, "reason": "fewer passes", "confidence": 0.8}),
    "the question's table": lambda i: f"The bins are:\n{_TABLE}\nWhich one? I need {i} more minutes.",
    "a speedup": lambda i: f"Expected speedup: {1 + i / 7:.2f}x on the H100, from 8 warps, 2 stages, 128 columns.",
    "seven probabilities": lambda i: json.dumps({"probabilities": [1 / 7] * 7, "bin": 1 + i % 8}),
    "nine probabilities": lambda i: json.dumps({"probabilities": [1 / 9] * 9, "bin": 1 + i % 8}),
    "sum too large": lambda i: json.dumps({"probabilities": [0.2 + i / 50] * 8}),
    "sum too small": lambda i: json.dumps({"probabilities": [0.06 - i / 500] * 8}),
    "negative": lambda i: json.dumps({"probabilities": [-0.1 - i / 100, 0.3 + i / 100, *_FLAT[2:]]}),
    "NaN": lambda i: json.dumps({"probabilities": [float("nan"), *_FLAT[1:]], "n": i}),
    "words": lambda i: json.dumps({"probabilities": ["low", "low", "low", "some", "high", "some", "low", "low"], "n": i}),
    "true": lambda i: json.dumps({"probabilities": [True, *[False] * 7], "n": i}),
    "null": lambda i: json.dumps({"probabilities": None, "bin": None, "n": i}),
    "twice the same bin": lambda i: json.dumps({"probabilities": [{"bin": 1 + min(k, 6), "p": x} for k, x in enumerate(_FLAT)], "n": i}),
    "bins from 0": lambda i: json.dumps({"probabilities": {str(k): x for k, x in enumerate(_FLAT)}, "n": i}),
    "half of the bins": lambda i: json.dumps({"probabilities": {"4": 0.3, "5": 0.3}, "n": i}),
    "cut off within it": lambda i: '{"reason": "n ' + str(i) + '", "probabilities": [0.1, 0.1, 0.1, 0.1, 0.3, 0.',
    "the schema": lambda i: json.dumps({"type": "object", "properties": {"probabilities": {"type": "array", "minItems": 8, "maxItems": 8 + i}}}),
    "a draft, never ended": lambda i: f"<think>{THOUGHT * (1 + i)}",
    "a draft, then nothing": lambda i: f"<think>{THOUGHT * (1 + i)}</think>\n",
    "a draft, then a refusal": lambda i: f"<think>{THOUGHT}{json.dumps({'probabilities': _FLAT})}</think>I cannot tell, {i} things are unknown.",
    "a draft in the analysis channel": lambda i: f"<|channel|>analysis<|message|>{THOUGHT * (1 + i)}{json.dumps({'probabilities': _FLAT})}",
    "code": lambda i: f"```python\ndef kernel(x):\n    w = {_FLAT}\n    return x * w[{i}]\n```",
    "another tool": lambda i: _call("run_kernel", {"candidate": "softmax", "repeats": 100 + i}),
    "a tool without a distribution": lambda i: _call("forecast", {"bin": 1 + i % 8, "reason": "memory bound"}),
    "mixed units": lambda i: json.dumps({"probabilities": ["10%", 0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1], "n": i}),
    "braces": lambda i: "{" * (100 * (1 + i)),
    "lines of seven bins": lambda i: "\n".join(f"Bin {k}: {100 / 7:.1f}%" for k in range(1, 8)) + f"\n{i}",
}  # fmt: skip


def answers(n: int, rng: np.random.Generator) -> list[tuple[str, str, list[float]]]:
    """``n`` replies, each with the name of its form and what it states; the forms in turn."""
    names = list(FORMS)
    stated = [distribution(rng) for _ in range(n)]
    return [(names[i % len(names)], FORMS[names[i % len(names)]](p), p) for i, p in enumerate(stated)]


def no_answers(n: int) -> list[tuple[str, str]]:
    """``n`` texts that are no answer, each with the name of its kind."""
    names = list(NO_ANSWERS)
    return [(names[i % len(names)], NO_ANSWERS[names[i % len(names)]](i // len(names))) for i in range(n)]
