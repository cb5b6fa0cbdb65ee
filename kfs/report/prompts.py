"""What a prompt's options change, and whether a forecaster reads a source or remembers it: tables from forecasts.

Each option is switched alone against the forecaster as it is configured, for the same pairs; the control asks the same pairs in
other words (``kfs.forecast.disguise``). Where answers are sampled, asking again in the same words shows what chance alone moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from kfs import score
from kfs.forecast import FORECASTERS
from kfs.forecast.disguise import disguise
from kfs.forecast.language import LanguageModel
from kfs.forecast.query import languages
from kfs.records import Forecast, Pair
from kfs.report.tables import PROBABILITIES, Intervals, characters_cut, design, headline, paired, tidy

BASE = "as configured"
N_EXAMPLES = 3
_LEFT_OUT = re.compile(r"\b(\d+) examples left out\b")


def is_language_model(name: str) -> bool:
    """Whether it is a forecaster of ours that reads prompts."""
    return issubclass(FORECASTERS.get(name, object), LanguageModel)


def variants(name: str, options: Mapping[str, Any], switched: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Options of a language model, each switched alone; but ``light`` with the cases that it speaks of.

    Parameters
    ----------
    name : str
        A key of ``FORECASTERS``.
    options : mapping
        Those it is configured with; the rest have their defaults.
    switched : iterable of str
        Fields of ``PromptOptions``.

    Returns
    -------
    dict of str to dict
        Changed options by what was done, for example ``{"with cases": {"cases": True}}``.

    Examples
    --------
    >>> variants("local", {"examples": 2}, ["cases", "examples", "form"])
    {'with cases': {'cases': True}, 'without examples': {'examples': 0}, 'verbal': {'form': 'verbal'}}
    """
    defaults = {f.name: f.default for f in fields(FORECASTERS[name])}
    found = {}
    for option in switched:
        value = options.get(option, defaults[option])
        if option == "form":
            other = "verbal" if value == "readout" else "readout"
            found[other] = {"form": other}
        else:
            on = N_EXAMPLES if option == "examples" else True
            change = {option: type(on)(0) if value else on}
            needs_cases = option == "light" and not value and not options.get("cases", defaults["cases"])
            found[f"{'without' if value else 'with'} {option}{' and cases' * needs_cases}"] = {
                **change,
                **({"cases": True} if needs_cases else {}),
            }
    return found


def disguised(pairs: Sequence[Pair]) -> list[Pair]:
    """The same pairs in other words, without those of which a source has no name that may be changed.

    Identities, labels and variants stay, so that they can be joined.
    """
    found = []
    for p in pairs:
        made = {side: disguise(getattr(p, side), language) for side, language in languages(p).items()}
        if all(d.renamed for d in made.values()):
            found.append(p.model_copy(update={side: d.source for side, d in made.items()}))
    return found


def of(pairs: Sequence[Pair], forecasts: Iterable[Forecast]) -> list[Forecast]:
    """The forecasts of some pairs, in their order, one a pair."""
    by_id = {f.comparison_id: f for f in forecasts}
    return [by_id[p.comparison_id] for p in pairs]


def cost_and_gain(pairs: list[Pair], found: Mapping[str, list[Forecast]], intervals: Intervals) -> pd.DataFrame:
    """What each prompt costs and what it gains over the first one.

    Parameters
    ----------
    pairs : list of Pair
    found : mapping of str to list of Forecast
        By what was done to the prompt; the first is what the others are compared with. In the order of the pairs.
    intervals : Intervals

    Returns
    -------
    DataFrame
        Columns prompt, half_brier and spearman with low and high, gain (fall of half Brier against the first prompt) with low and
        high from the paired bootstrap, moved (share of pairs whose distribution changed), n_parse_failed, input_tokens and
        output_tokens (means), seconds (median of an answer when it was computed), share_cut (prompts whose sources were cut),
        examples_left_out (mean of a prompt), n. Where ``moved`` is 0 the option changed no prompt, or none that mattered.
    """
    frame = tidy(pairs, found)
    scores = headline(frame, intervals, {"all": pd.Series(True, index=frame.index)}).set_index("forecaster")
    base = next(iter(found))
    against = paired(frame, base, intervals, metrics=("half_brier",), only=("all",)).set_index("second")
    first = np.array([f.probabilities for f in found[base]])
    table = []
    for name, answers in found.items():
        row = scores.loc[name]
        line: dict[str, Any] = {"prompt": name}
        line |= {f"{m}{end}": row[f"{m}{end}"] for m in ("half_brier", "spearman") for end in ("", "_low", "_high")}
        ends = against.loc[name, ["estimate", "low", "high"]] if name != base else (0.0, np.nan, np.nan)
        line |= dict(zip(("gain", "gain_low", "gain_high"), ends, strict=True))
        line["moved"] = (np.abs(np.array([f.probabilities for f in answers]) - first).max(axis=1) > 1e-9).mean()
        line["n_parse_failed"] = sum(f.parse_failed for f in answers)
        for column in ("input_tokens", "output_tokens"):
            line[column] = np.mean([getattr(f, column) or 0 for f in answers])
        line["seconds"] = np.median([np.nan if f.elapsed_s is None else f.elapsed_s for f in answers])
        line["share_cut"] = np.mean([characters_cut(f.reasoning) > 0 for f in answers])
        line["examples_left_out"] = np.mean([int(m[1]) if (m := _LEFT_OUT.search(f.reasoning)) else 0 for f in answers])
        table.append({**line, "n": len(answers)})
    return pd.DataFrame(table)


def movement(
    pairs: list[Pair], before: list[Forecast], after: list[Forecast], intervals: Intervals, **labels: Any
) -> dict[str, Any]:
    """How far forecasts of the same pairs moved between two ways of asking; pairs unparsed in either are counted, not compared.

    Returns
    -------
    dict
        ``labels``, then moved (mean total variation distance, 0 to 1), other_bin (share whose likeliest bin changed),
        octaves (mean absolute change of expected log2 speedup), worse (rise of half Brier), each with low and high over tasks and
        kernels, NaN where no pair is parsed in both; n, n_parse_failed (in either), n_compared.
    """
    frames = [tidy(pairs, {"x": answers}) for answers in (before, after)]
    parsed = ~(frames[0]["parse_failed"] | frames[1]["parse_failed"])
    a, b = (f[parsed].reset_index(drop=True) for f in frames)
    line = labels | {
        f"{name}{end}": np.nan for name in ("moved", "other_bin", "octaves", "worse") for end in ("", "_low", "_high")
    }
    if len(a):
        p, q, truth = a[PROBABILITIES].to_numpy(), b[PROBABILITIES].to_numpy(), a["true_bin"].to_numpy()
        changes = {
            "moved": 0.5 * np.abs(p - q).sum(axis=1),
            "other_bin": (a["predicted_bin"] != b["predicted_bin"]).to_numpy(dtype=float),
            "octaves": np.abs(a["expected_log2"] - b["expected_log2"]).to_numpy(),
            "worse": score.half_brier_per_row(q, truth) - score.half_brier_per_row(p, truth),
        }
        for name, values in changes.items():
            found = score.bootstrap(score.mean, (values,), **design(a), **intervals.options())
            line |= {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}
    return {**line, "n": len(pairs), "n_parse_failed": int((~parsed).sum()), "n_compared": int(parsed.sum())}


def scatter(pairs: list[Pair], before: list[Forecast], after: list[Forecast]) -> pd.DataFrame:
    """Expected log2 speedup as it stands and in other words: columns comparison_id, subset, before, after, measured."""
    frames = [tidy(pairs, {"x": answers}) for answers in (before, after)]
    columns = {"comparison_id": frames[0]["comparison_id"], "subset": frames[0]["subset"]}
    columns |= {name: f["expected_log2"] for name, f in zip(("before", "after"), frames, strict=True)}
    return pd.DataFrame({**columns, "measured": np.log2(frames[0]["speedup"])})
