"""What a model replied, read as a distribution over the eight bins, or why it cannot be.

Accepted: a tool call, a JSON object (alone, in prose, in a fence, inside tags that tool calls are written in), or eight lines
that give each bin a number. Probabilities may be a list, a table of bins, or keys; percentages, and sums from 0.5 to 1.5, are
renormalised and the raw sum is kept. What a model thinks before it answers (``<think>``, the analysis channel of gpt-oss) is
no answer. The last distribution counts. Everything else is a failure with its reason: no text raises, hangs or is run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfs.speedup import N_BINS, NAMES

LEAST_SUM, LARGEST_SUM = 0.5, 1.5
"""Sums of probabilities that are renormalised; a hundred times as much for percentages."""
_MAX_ANSWER = 200_000  # characters of an answer that are looked at, its last
_MAX_OBJECTS = 200  # places where an object may begin, the last ones
_MAX_REPAIRS = 8  # of these that are tried again mended, the last ones
_REPAIRED = 4000  # characters that are mended
_MAX_REASON = 4000

_DISTRIBUTION = ("probabilities", "bin_probabilities", "probability", "probs", "distribution", "bins")
_STATED = ("predicted_bin", "bin", "most_likely_bin", "answer", "prediction")
_REASON = ("reason", "reasoning", "rationale", "explanation")
_INSIDE = ("arguments", "parameters", "input", "forecast", "answer", "output", "response", "result", "final")
_NAME = {re.sub(r"[^a-z]", "", name): i for i, name in enumerate(NAMES, start=1)}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"

_OPENING = re.compile(r"\{|\[(?=\s{0,9}\{)")
_STRICT = re.compile(r"\{\s{0,99}[\"}]|\[")
_THOUGHT_ENDS = re.compile(r"</(?:think|thinking|thought|reasoning)>")
_THOUGHT_BEGINS = re.compile(r"<(?:think|thinking|thought|reasoning)>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_LISTED = re.compile(rf'(?:{"|".join(_DISTRIBUTION)})(?:["\'*`]*\s*:|>)[\s*`]*(\[[^\[\]]{{1,2000}}\])', re.IGNORECASE)
_LINE = re.compile(
    rf"^[\s>|*#\-]*(?:bin[\s_]*)?\**([1-8])\**(?=[\s.:|)(=,*-])(?:.{{0,120}}?[\s:=|(*])?({_NUMBER})\s*(%?)[\s|*.,;)]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reply:
    """A distribution, or ``error``: why there is none."""

    probabilities: tuple[float, ...] | None = None
    """Eight numbers that sum to 1."""
    raw_sum: float | None = None
    """Their sum as stated, as a share also where it was stated in per cent."""
    stated_bin: int | None = None
    """The bin stated beside the distribution."""
    reason: str = ""
    """What the model says for itself, in the answer."""
    error: str | None = None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_reply(text: str | None, tool_arguments: Iterable[str] = ()) -> Reply:
    """Read a model's reply.

    Parameters
    ----------
    text : str or None
        The message's content.
    tool_arguments : iterable of str
        Arguments of its tool calls, as JSON; they count before the text.

    Returns
    -------
    Reply

    Examples
    --------
    >>> reply = read_reply('Sure: {"probabilities": [0, 0, 0, 0.1, 0.7, 0.2, 0, 0], "bin": 5}')
    >>> reply.probabilities[4], reply.stated_bin
    (0.7, 5)
    >>> read_reply("I cannot say.").error
    'no distribution: no JSON object and no list of bins'
    """
    faults = []
    for part in (*reversed([a for a in tool_arguments if isinstance(a, str)]), text or ""):
        try:
            found = _read(part)
        except (RecursionError, ValueError, OverflowError, TypeError, MemoryError) as error:  # a parser's limit, not an answer
            found = Reply(error=f"unreadable: {type(error).__name__}")
        if found.error is None:
            return found
        if part.strip():
            faults.append(found.error)
    return Reply(error=faults[0] if faults else "empty reply")


def _read(text: str) -> Reply:
    answer = _answer(text)
    if answer is None:
        return Reply(error="the reasoning never ended: no answer follows it")
    answer = answer[-_MAX_ANSWER:]
    if not answer.strip():
        return Reply(error="no answer after the reasoning" if text.strip() else "empty reply")
    fault = None
    for value in _objects(answer):
        for candidate in _nested(value):
            found = _from_object(candidate)
            if isinstance(found, Reply):
                return found
            fault = fault or found
    if (found := _from_list(answer)) is not None:
        return found
    if (found := _from_lines(answer)) is not None:
        return found
    return Reply(error=fault or "no distribution: no JSON object and no list of bins")


def _answer(text: str) -> str | None:
    """What stands after the reasoning; None if it never ended."""
    channels = list(_CHANNEL.finditer(text))
    if channels:
        last = next((c for c in reversed(channels) if c[1] != "analysis"), None)
        return None if last is None else re.split(r"<\|(?:end|return|call)\|>", text[last.end() :], maxsplit=1)[0]
    ends = [m.end() for m in _THOUGHT_ENDS.finditer(text)]
    rest = text[ends[-1] :] if ends else text
    begun = _THOUGHT_BEGINS.search(rest)
    if begun is None:
        return rest
    return rest[: begun.start()] if rest[: begun.start()].strip() else None


def _objects(text: str) -> Iterator[Any]:
    """JSON objects and lists of objects in a text, the last first; those that lie inside another one come after it."""
    starts = [m.start() for m in _OPENING.finditer(text)][-_MAX_OBJECTS:]
    values, reached = [], -1
    for i, at in enumerate(starts):
        if at < reached:
            continue  # inside one that was read whole
        value, reached = _decoded(text, at) if _STRICT.match(text, at) else (None, reached)
        if value is None and i >= len(starts) - _MAX_REPAIRS:
            value, _ = _decoded(_repair(text[at : at + _REPAIRED]), 0)
        values.append(value)
    for value in reversed(values):
        yield value


def _decoded(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins there, and where it ends; None where none does."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _repair(text: str) -> str:
    """A text in which trailing commas, comments and single quotes no longer hide an object."""
    text = re.sub(r"(?m)(?<![:\"'])//[^\n\"]*$", "", text)
    text = re.sub(r",(\s*[}\]])", r"\1", text)
    if '"' not in text.partition("}")[0]:
        text = text.replace("'", '"')
    return re.sub(r"([{,]\s*)([A-Za-z_]\w*)(\s*:)", r'\1"\2"\3', text)


def _nested(value: Any, depth: int = 0) -> Iterator[Mapping]:
    """A value's own mapping, then those in which tool calls and wrappers keep theirs."""
    if isinstance(value, str) and depth and "{" in value and len(value) < 20_000:
        for inner in _objects(value):
            yield from _nested(inner, depth + 1)
    if isinstance(value, list) and value and all(isinstance(x, dict) for x in value):
        value = value[-1] if len(value) < N_BINS else {"probabilities": value}
    if not isinstance(value, dict) or depth > 4:
        return
    yield value
    for key in _INSIDE:
        if key in value:
            yield from _nested(value[key], depth + 1)
    if isinstance(function := value.get("function"), dict):
        yield from _nested(function, depth + 1)


def _from_object(value: Mapping) -> Reply | str | None:
    """A reply; or why its distribution is none; or None where it does not try to give one."""
    value = {str(k).strip().lower().replace(" ", "_"): v for k, v in value.items()}
    given = next((value[k] for k in _DISTRIBUTION if isinstance(value.get(k), (list, dict))), None)
    given = given if given is not None else {k: v for k, v in value.items() if _bin_of(k) is not None}
    if not given:
        return None
    found = _by_bin(given)
    if isinstance(found, str):
        return found
    stated = next((b for b in (_bin_of(value[k], alone=True) for k in _STATED if k in value) if b is not None), None)
    reason = next((v for v in (value.get(k) for k in _REASON) if isinstance(v, str)), "")
    return _made(found, stated, reason[:_MAX_REASON])


def _by_bin(given: Sequence | Mapping) -> dict[int, tuple[float, bool]] | str:
    """Each bin's number and whether it was in per cent; or what is wrong."""
    if isinstance(given, Mapping):
        rows = list(given.items())
    elif given and all(isinstance(x, Mapping) for x in given):
        rows = [_row(x) for x in given[:100]]
    elif len(given) == N_BINS:
        rows = list(enumerate(given, start=1))
    else:
        return f"{len(given)} probabilities, expected {N_BINS}"
    found: dict[int, tuple[float, bool]] = {}
    for key, raw in rows:
        which, number = _bin_of(key), _number(raw)
        if which is None:
            return f"{str(key)[:40]!r} names no bin from 1 to {N_BINS}"
        if number is None:
            return f"bin {which} has {str(raw)[:40]!r}, which is no probability"
        if which in found:
            return f"bin {which} is given twice"
        found[which] = number
    return found


def _row(x: Mapping) -> tuple[Any, Any]:
    x = {str(k).lower(): v for k, v in x.items()}
    first = lambda *keys: next((x[k] for k in keys if k in x), None)
    return first("bin", "index", "bin_index", "id", "name", "label"), first("p", "probability", "prob", "value", "share")


def _bin_of(key: Any, *, alone: bool = False) -> int | None:
    """The bin a key or value names, 1 to 8; with ``alone`` also within a few words."""
    if isinstance(key, bool) or not isinstance(key, (int, float, str)):
        return None
    if not isinstance(key, str):
        return int(key) if key in range(1, N_BINS + 1) else None
    text = key[:80].strip().lower()
    plain = re.fullmatch(r"(?:bin|p|b)?[\s_#:-]*([1-8])(?:\.0)?", text)
    if plain is None and alone:
        plain = re.match(r"bin[\s_#:]*([1-8])\b", text) or re.match(r"([1-8])\b(?!\s*[./\d])", text)
    if plain is not None:
        return int(plain[1])
    named = _NAME.get(re.sub(r"[^a-z]", "", text))
    digits = re.findall(r"\d+", text)
    return named if named is not None and digits in ([], [str(named)]) else None


def _number(raw: Any) -> tuple[float, bool] | None:
    """A number that may be a probability, and whether it was in per cent."""
    percent = False
    if isinstance(raw, str):
        match = re.fullmatch(rf"\s*~?\s*({_NUMBER})\s*(%?)\s*", raw[:40])
        if match is None:
            return None
        raw, percent = float(match[1]), bool(match[2])
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    value = float(raw)
    return (value, percent) if math.isfinite(value) and value >= 0 else None


def _made(found: Mapping[int, tuple[float, bool]], stated: int | None, reason: str) -> Reply | str:
    values = [found.get(b, (0.0, False))[0] for b in range(1, N_BINS + 1)]
    total, missing = sum(values), N_BINS - len(found)
    percent = any(p for _, p in found.values())
    if percent and not all(p or v == 0 for v, p in found.values()):
        return "some probabilities are in per cent and others are not"
    scale = 100.0 if percent or LEAST_SUM * 100 <= total <= LARGEST_SUM * 100 else 1.0
    share = total / scale
    if not LEAST_SUM <= share <= LARGEST_SUM:
        return f"the probabilities sum to {share:.4g}, allowed are {LEAST_SUM} to {LARGEST_SUM}"
    if missing and abs(share - 1) > 0.02:
        return f"{missing} of {N_BINS} bins have no probability and the others sum to {share:.4g}"
    return Reply(tuple(v / total for v in values), share, stated, reason)


def _from_list(answer: str) -> Reply | None:
    """A list that is named but in no whole object, as where a reply was cut off after it; or one that is all of the answer."""
    lists = [m[1] for m in _LISTED.finditer(answer)][-1:] or [answer.strip().removeprefix("```json").strip("`\n ")]
    if not lists[0].startswith("["):
        return None
    try:
        given = json.loads(_repair(lists[0]), parse_constant=_refuse)
    except ValueError:
        return None
    found = _by_bin(given) if isinstance(given, list) else ""
    reply = found if isinstance(found, str) else _made(found, None, "")
    return reply if isinstance(reply, Reply) else None


def _from_lines(answer: str) -> Reply | None:
    """The last eight lines that give the bins 1 to 8, in order, a number each, with nothing but empty lines between."""
    run: dict[int, tuple[float, bool]] = {}
    best: Reply | None = None
    for line in answer[-20_000:].split("\n"):
        line = line.strip()
        if not line:
            continue
        match = _LINE.match(line[:300])
        if match is None:
            run = {}
            continue
        which, number = int(match[1]), _number(match[2] + match[3])
        run = {**run, which: number} if which == len(run) + 1 and number is not None else {}
        if which == 1 and number is not None:
            run = {1: number}
        if len(run) == N_BINS:
            reply = _made(run, None, "")
            best = reply if isinstance(reply, Reply) else best
            run = {}
    return best
