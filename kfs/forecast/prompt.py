"""What a language model is asked: instructions, what all candidates of a reference share, and the candidate last.

The three parts stay apart, so that a prefix common to many queries is common text. Two forms of answer: ``verbal``, eight
probabilities as JSON or a tool call, after thinking where a model does; and ``readout``, where the prompt ends before the
number of a bin and the next token's logits are the forecast. Everything beyond sources is an option, so that it can be
switched off and its worth measured. A prompt fits the room it is given: sources are cut in the middle, visibly, and what was
cut is recorded. Nothing here asks a model.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from kfs.forecast.context import Context
from kfs.forecast.query import Query
from kfs.speedup import N_BINS, STUDY_BINS

TEMPLATES = Path(__file__).parent / "templates"
CUT_MARK = "\n... [cut: {n} characters] ...\n"
LEAST_SOURCE = 100
"""Characters of a source that are kept at least; a room that leaves less is an error."""
Count = Callable[[str], int]
"""Tokens of a text."""


@dataclass
class PromptOptions:
    """What a prompt holds beyond the task, the hardware and the two sources; forecasters that read prompts have these fields."""

    form: Literal["verbal", "readout"] = "verbal"
    """How the model answers."""
    cases: bool = True
    """The benchmark cases, with their sizes and distributions."""
    hardware: bool = True
    """The figures of the hardware, not its name alone."""
    light: bool = False
    """The speed-of-light time of every case."""
    facts: bool = False
    """What a compiler makes of each kernel, where it is known."""
    diff: bool = False
    """A unified diff in place of the whole candidate."""
    examples: int = 0
    """Measured pairs of the training split that are shown, at most."""


@dataclass(frozen=True)
class Example:
    """A measured pair that a prompt may show."""

    title: str
    anchor_code: str
    candidate_code: str
    speedup: float

    @property
    def bin(self) -> int:
        """The bin its speedup lies in."""
        return int(STUDY_BINS.index(self.speedup))


@dataclass(frozen=True)
class Prompt:
    """Three texts, in the order they are read, and how many characters of each source were left out."""

    system: str
    shared: str
    candidate: str
    cut: dict[str, int] = field(default_factory=dict)
    """Characters cut, by ``reference`` and ``candidate``; empty where both are whole."""
    dropped: int = 0
    """Examples left out for want of room."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat: a system message and one of the user."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.shared + self.candidate}]

    @property
    def text(self) -> str:
        """Everything, for people and estimates of length."""
        return "\n".join((self.system, self.shared + self.candidate))

    @property
    def notes(self) -> str:
        """What was cut, in words; empty where nothing was."""
        said = [f"{who} cut by {n} characters" for who, n in self.cut.items()]
        return "; ".join(said + [f"{self.dropped} examples left out"] * bool(self.dropped))


def build(
    query: Query,
    options: PromptOptions | None = None,
    *,
    context: Context | None = None,
    room: int | None = None,
    count: Count | None = None,
    examples: Sequence[Example] = (),
) -> Prompt:
    """The prompt of a query.

    Parameters
    ----------
    query : Query
    options : PromptOptions, optional
        Form, diff and number of examples; the rest decides which context to gather (``kfs.forecast.context``).
    context : Context, optional
    room : int, optional
        Tokens the three texts may take together; None: no limit. Examples are left out, the last one first, while they and the
        rest take more than half of it; then the sources are cut.
    count : callable, optional
        Tokens of a text by the model's own tokeniser; by default a cautious guess from its characters.
    examples : sequence of Example
        Measured pairs to choose from; the first ``options.examples`` are shown.

    Returns
    -------
    Prompt

    Raises
    ------
    ValueError
        If the room does not hold the instructions and ``LEAST_SOURCE`` characters of each source.
    """
    options, count = options or PromptOptions(), count or guessed_tokens
    shown = list(examples[: options.examples])
    rest = {"query": query, "options": options, "context": context or Context(), "examples": shown}
    sources = {"reference": query.anchor_code.strip(), "candidate": _candidate(query, options)}
    whole = _render(rest, **sources)
    if room is None or _size(whole, count) <= room:
        return whole
    bare = _size(_render(rest, reference="", candidate=""), count)
    while shown and 2 * bare > room:
        shown.pop()
        bare = _size(_render(rest, reference="", candidate=""), count)
    dropped = min(options.examples, len(examples)) - len(shown)
    whole = _render(rest, **sources)
    if _size(whole, count) <= room:
        return replace(whole, dropped=dropped)
    sizes = {who: count(text) for who, text in sources.items()}
    left, texts = room - bare, {}
    for who in sorted(sources, key=sizes.get):  # what the shorter one does not need goes to the longer
        share = left // (2 - len(texts))
        texts[who] = cut(sources[who], share, count)
        left -= count(texts[who][0])
    lost = {who: texts[who][1] for who in sources if texts[who][1]}
    if any(len(sources[who]) - n < min(LEAST_SOURCE, len(sources[who])) for who, n in lost.items()):
        need = bare + sum(count(text[:LEAST_SOURCE]) + count(CUT_MARK) + 8 for text in sources.values())
        raise ValueError(f"{room} tokens leave too little of the sources; raise max_tokens by at least {max(need - room, 16)}")
    made = _render(rest, **{who: text for who, (text, _) in texts.items()})
    return replace(made, cut=lost, dropped=dropped)


def cut(text: str, room: int, count: Count) -> tuple[str, int]:
    """A text that fits ``room`` tokens, its middle replaced by a mark, and how many characters were taken out.

    Examples
    --------
    >>> cut("a" * 100, 40, len)
    ('aaaaa\\n... [cut: 90 characters] ...\\naaaaa', 90)
    """
    if count(text) <= room:
        return text, 0

    def kept(n: int) -> str:
        return text[: n // 2] + CUT_MARK.format(n=len(text) - n) + text[len(text) - (n - n // 2) :]

    low, high = 0, len(text) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(kept(middle)) <= room else (low, middle - 1)
    return kept(low), len(text) - low


def guessed_tokens(text: str) -> int:
    """Tokens of a text of unknown tokeniser: one for two bytes, which is more than tokenisers make of dense code.

    Examples
    --------
    >>> guessed_tokens("abcd")
    2
    """
    return math.ceil(len(text.encode(errors="replace")) / 2)


def answer_schema() -> dict[str, Any]:
    """JSON schema of a verbal answer; every number and string is bounded, so that a constrained model must come to an end."""
    probability = {"type": "number", "minimum": 0, "maximum": 1}
    return {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "maxLength": 400},
            "probabilities": {"type": "array", "items": probability, "minItems": N_BINS, "maxItems": N_BINS},
            "bin": {"type": "integer", "minimum": 1, "maximum": N_BINS},
        },
        "required": ["reason", "probabilities", "bin"],
        "additionalProperties": False,
    }


def answer_tool() -> dict[str, Any]:
    """The tool a chat model may call to answer."""
    about = "State the forecast: the probability of every speedup bin, the likeliest bin, and the reason in a sentence or two."
    function = {"name": "forecast", "description": about, "parameters": answer_schema()}
    return {"type": "function", "function": function | {"strict": True}}  # else vLLM holds a forced call to JSON of any shape


def _candidate(query: Query, options: PromptOptions) -> str:
    """The candidate's source, or what turns the reference into it."""
    if not options.diff:
        return query.candidate_code.strip()
    before, after = query.anchor_code.strip().splitlines(), query.candidate_code.strip().splitlines()
    return "\n".join(difflib.unified_diff(before, after, "reference", "candidate", lineterm="", n=2))


def _size(prompt: Prompt, count: Count) -> int:
    return sum(map(count, (prompt.system, prompt.shared, prompt.candidate)))


def _render(rest: dict[str, Any], **sources: str) -> Prompt:
    values = {**rest, **sources, "bins": STUDY_BINS.table(), "n_bins": N_BINS}
    return Prompt(*(_template(name).render(values) for name in ("system.j2", "shared.j2", "candidate.j2")))


@cache
def _template(name: str):
    """A template; undefined names are errors, and no source is ever taken for a template."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # prompts are no HTML
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)
