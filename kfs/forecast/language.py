"""What all language models share as forecasters: prompts, repeats, and a cache so that no answer is ever paid for twice.

A model says how it answers calls (``ask``), what it is (``model_id``) and how it samples (``sampling``); from these, the prompt
and the repeat follows the key an answer is kept by. Equal prompts are asked once. Nothing is learnt; with ``examples``, a few
measured pairs of the training split are shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kfs.errors import SchemaError
from kfs.forecast.answer import Answer, Call, pooled
from kfs.forecast.cache import AnswerCache
from kfs.forecast.context import context_of
from kfs.forecast.prompt import Example, Prompt, PromptOptions, build, guessed_tokens
from kfs.forecast.query import Query
from kfs.records import Forecast, Hardware, Pair
from kfs.speedup import N_BINS
from kfs.tasks import Task

if TYPE_CHECKING:
    from kfs.pairs import Fold

Done = Callable[[Call, Answer], None]


@dataclass
class LanguageModel(PromptOptions, ABC):
    """Base of the forecasters that ask a language model."""

    repeats: int = 1
    """Answers a query; their distributions are pooled."""
    first_repeat: int = 0
    """Number of the first of them: the same question under another number is asked anew."""
    temperature: float = 1.0
    """Of sampled answers; a readout samples nothing."""
    max_output_tokens: int = 2048
    """Of an answer, thinking included."""

    name: ClassVar[str]
    learns: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        if self.repeats < 1 or self.max_output_tokens < 1 or min(self.temperature, self.examples, self.first_repeat) < 0:
            raise SchemaError(
                f"forecaster {self.name!r}: need repeats >= 1, max_output_tokens >= 1; temperature, examples, first_repeat >= 0"
            )
        if self.form not in ("verbal", "readout"):
            raise SchemaError(f"forecaster {self.name!r}: form {self.form!r}; known: verbal, readout")
        self.tasks: dict[str, Task] = {}
        """Tasks that are not kfs's own, by the name of their pack."""
        self.processors: dict[str, Hardware] = {}
        """Hardware that is described nowhere, by name."""
        self._shown: dict[str, list[Example]] = {}

    @abstractmethod
    def model_id(self) -> str:
        """What the model is: for keys, so that the answers of one are never taken for another's."""

    def sampling(self) -> dict[str, Any]:
        """What of the options decides an answer beside the prompt, for keys."""
        if self.form == "readout":
            return {"form": "readout"}
        return {"form": "verbal", "temperature": self.temperature, "max_output_tokens": self.max_output_tokens}

    def learnt_from(self) -> list[str]:
        """Families of tasks (``kfs.pairs.family``) the model is known to have been trained on, on which it is never judged."""
        return []

    @abstractmethod
    def ask(self, calls: Sequence[Call], done: Done) -> None:
        """Answer calls in any order, each handed to ``done`` as soon as it is there."""

    def room(self) -> int | None:
        """Tokens a prompt may have; None for no limit."""
        return None

    def count(self, text: str) -> int:
        """Tokens of a text; at least as many as the model makes of it."""
        return guessed_tokens(text)

    def spent(self) -> str:
        """What the current run has cost so far, in a few words for a progress bar."""
        return ""

    def fit(self, train: Sequence[Pair], calibration: Sequence[Pair]) -> LanguageModel:
        """Choose the examples to show: the shortest pairs of every GPU's training split, bins in turn."""
        by_hardware: dict[str, dict[int, list[Pair]]] = {}
        for p in train if self.examples else ():
            by_hardware.setdefault(p.hardware, {}).setdefault(p.true_bin, []).append(p)
        self._shown = {hardware: _shortest(bins, self.examples) for hardware, bins in by_hardware.items()}
        return self

    def prompt(self, query: Query) -> Prompt:
        """The prompt of a query."""
        asked = {name: getattr(self, name) for name in ("cases", "hardware", "light", "facts")}
        known = {"task": self.tasks.get(query.pack), "processor": self.processors.get(query.hardware)}
        context = context_of(query, **asked, **known)
        shown = self._shown.get(query.hardware, ())
        return build(query, self, context=context, room=self.room(), count=self.count, examples=shown)

    def forecast(self, queries: Sequence[Query], *, progress: bool = False, cache: AnswerCache | None = None) -> list[Forecast]:
        """One forecast a query, in order.

        Parameters
        ----------
        queries : sequence of Query
        progress : bool, optional
            Show a progress bar.
        cache : AnswerCache, optional
            Where answers are looked up first and kept.
        """
        return self._forecast(queries, [self.prompt(q) for q in queries], progress=progress, cache=cache)

    def forecast_folds(
        self, folds: Sequence[Fold], asked: Sequence[str], *, progress: bool, cache: AnswerCache
    ) -> list[Forecast]:
        """Forecast the splits asked for of all folds; the examples shown for a fold are of its own training split.

        Raises
        ------
        TrainingError
            If a test pair's task is one the model has been trained on.
        """
        from kfs.pairs import require_held_out

        queries, prompts = [], []
        for fold in folds:
            if "test" in asked:
                require_held_out(self.learnt_from(), fold.test, f"forecaster {self.name!r}")
            self.fit(fold.train, fold.calibration)
            found = [Query.from_pair(p) for split in asked for p in getattr(fold, split)]
            queries += found
            prompts += [self.prompt(q) for q in found]
        return self._forecast(queries, prompts, progress=progress, cache=cache)

    def _forecast(
        self, queries: Sequence[Query], prompts: Sequence[Prompt], *, progress: bool, cache: AnswerCache | None
    ) -> list[Forecast]:
        from tqdm.auto import tqdm

        model, sampling = self.model_id(), self.sampling()
        numbers = range(self.first_repeat, self.first_repeat + self.repeats)
        calls = [[Call(prompt, r) for r in numbers] for prompt in prompts]
        keys = [[c.key(model, sampling) for c in group] for group in calls]
        wanted: dict[str, Call] = {k: c for ks, cs in zip(keys, calls, strict=True) for k, c in zip(ks, cs, strict=True)}
        kept = cache.get(wanted) if cache is not None else {}
        answers = {key: Answer.loads(text) for key, text in kept.items()}
        missing = {id(call): key for key, call in wanted.items() if key not in answers}
        with tqdm(total=len(wanted), initial=len(answers), desc=self.name, unit="answer", disable=not progress) as bar:

            def done(call: Call, answer: Answer) -> None:
                key = missing[id(call)]
                if cache is not None:
                    cache.put({key: answer.dumps()})
                answers[key] = answer
                bar.set_postfix_str(self.spent(), refresh=False)
                bar.update()

            if missing:
                self.ask([wanted[key] for key in missing.values()], done)
        return [
            pooled([answers[k].forecast(q, self.name, repeat=r, cut=p.notes) for r, k in zip(numbers, ks, strict=True)])
            for q, p, ks in zip(queries, prompts, keys, strict=True)
        ]


def _shortest(bins: Mapping[int, list[Pair]], n: int) -> list[Example]:
    """``n`` pairs, bins in turn from the middle outwards, the shortest of each first."""
    size = lambda p: (len(p.anchor_code) + len(p.candidate_code), p.comparison_id)
    queues = [sorted(bins[b], key=size) for b in sorted(bins, key=lambda b: (abs(b - (N_BINS + 1) / 2), b))]
    turns = [queue[i] for i in range(max(map(len, queues), default=0)) for queue in queues if i < len(queue)]
    return [Example(Query.from_pair(p).title, p.anchor_code, p.candidate_code, p.aggregated_speedup) for p in turns[:n]]
