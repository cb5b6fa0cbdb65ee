"""One call of a model: what is asked, what came back as it came, and the forecast read from it.

What is kept is the raw answer, never the forecast: a better parser reads old answers again without paying again. A transport
error is no answer and is never kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kfs.errors import SchemaError
from kfs.forecast.prompt import Prompt
from kfs.forecast.query import Query
from kfs.forecast.reply import read_reply
from kfs.records import Forecast, content_id


@dataclass(frozen=True)
class Call:
    """A prompt to be answered, and which of several times."""

    prompt: Prompt
    repeat: int = 0

    def key(self, model: str, sampling: Mapping[str, Any]) -> str:
        """Content id of all that decides what an answer may be - model and revision, prompt, sampling - and of the repeat."""
        return content_id(
            model, json.dumps(sampling, sort_keys=True), json.dumps(self.prompt.messages), str(self.repeat), length=32
        )


@dataclass(frozen=True)
class Answer:
    """What a model gave back."""

    text: str = ""
    tool_arguments: tuple[str, ...] = ()
    reasoning: str = ""
    """What a server keeps apart from the text."""
    log_probabilities: tuple[float, ...] = ()
    """Readout: of the eight bin tokens."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Input tokens that the server took from its prefix cache."""
    elapsed_s: float | None = None
    finish_reason: str = ""
    notes: str = ""
    """What a reader should know of how it came about."""

    def dumps(self) -> str:
        """As text; :meth:`loads` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Answer:
        """The answer that :meth:`dumps` wrote.

        Raises
        ------
        SchemaError
            If the text is no such answer.
        """
        try:
            fields = json.loads(text)
            return cls(**fields | {k: tuple(fields[k]) for k in ("tool_arguments", "log_probabilities")})
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"not a kept answer ({error}): {text[:100]!r}") from error

    def forecast(self, query: Query, label: str, *, repeat: int = 0, cut: str = "") -> Forecast:
        """The forecast this answer gives; one with ``parse_failed`` where it gives none.

        Parameters
        ----------
        query : Query
        label : str
            Name of the forecaster.
        repeat : int
        cut : str
            What of the prompt was left out, in words.
        """
        common = {
            "repeat": repeat,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "elapsed_s": self.elapsed_s,
        }
        names = (query.comparison_id, query.pack, label)
        notes = "; ".join(filter(None, (cut, self.notes)))
        if self.log_probabilities:
            p = np.clip(np.exp(self.log_probabilities), 1e-300, None)
            return Forecast.from_probabilities(*names, p, reasoning=notes, **common)
        reply = read_reply(self.text, self.tool_arguments)
        if reply.error is None:
            said = "; ".join(filter(None, (reply.reason, notes)))
            stated = np.array(reply.probabilities) * reply.raw_sum
            return Forecast.from_probabilities(*names, stated, reasoning=said, stated_bin=reply.stated_bin, **common)
        why = reply.error + (" (the answer reached its length limit)" if self.finish_reason == "length" else "")
        named = dict(zip(("comparison_id", "pack", "surrogate_label"), names, strict=True))
        return Forecast(**named, parse_failed=True, parse_error=why, reasoning=notes, **common)


def pooled(forecasts: Sequence[Forecast]) -> Forecast:
    """One forecast from the repeats of a query: the mean distribution of those that could be read; tokens and seconds are sums.

    If none could be read, neither can the pooled one.
    """
    if len(forecasts) == 1:
        return forecasts[0]
    first, read = forecasts[0], [f for f in forecasts if not f.parse_failed]
    sums = {}
    for name in ("input_tokens", "output_tokens", "elapsed_s"):
        known = [v for f in forecasts if (v := getattr(f, name)) is not None]
        sums[name] = sum(known) if known else None
    if not read:
        return first.model_copy(update=sums)
    p = np.mean([f.probabilities for f in read], axis=0)
    note = "; ".join(filter(None, (f"pooled from {len(read)} of {len(forecasts)} answers", read[0].reasoning)))
    return Forecast.from_probabilities(first.comparison_id, first.pack, first.surrogate_label, p, reasoning=note, **sums)
