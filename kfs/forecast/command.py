"""``kfs forecast``: how fast one kernel is likely to be beside another, read and not run, and whether to measure it."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfs.errors import SchemaError, TaskError, unknown_name

if TYPE_CHECKING:
    from kfs.forecast.language import LanguageModel
    from kfs.forecast.query import Query
    from kfs.records import Forecast, Hardware

PRICE = 0.5
"""Bins one is willing to be off rather than measure, where none is stated."""
_BAR = 40
_OWN = ("hardware", "task", "forecaster", "price")


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Register the verb ``forecast``."""
    verb = verbs.add_parser(
        "forecast",
        help="forecast a kernel's speedup over another by reading both",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Forecast CANDIDATE's speedup over REFERENCE as a probability for each of eight bins. Neither is run.\n"
        "Exit status: 0 with a forecast, 1 where the model's reply was none.",
        epilog="""\
KEY=VALUE:
  hardware=NAME     what they would run on: a processor of conf/hardware (kfs forecast --hardware lists them), or this, the
                    machine at hand (default this)
  task=NAME         what they compute: a task of kfs, or a folder with task.py; tells sizes and distributions (default unknown)
  forecaster=NAME   local (SmolLM2 in this process; default), endpoint (any OpenAI-compatible server), engine (vLLM here)
  price=BINS        trust the forecast where the error it expects of itself is no more than so many bins (default 0.5)
  OPTION=VALUE      any option of the forecaster, for example model=FOLDER, base_url=http://HOST:PORT/v1, repeats=3, light=true

example:
  kfs forecast reference.py candidate.py task=softmax hardware=h100""",
    )
    verb.add_argument("reference", nargs="?", metavar="REFERENCE", help="file with the kernel to compare with")
    verb.add_argument("candidate", nargs="?", metavar="CANDIDATE", help="file with the kernel in question")
    verb.add_argument("options", nargs="*", metavar="KEY=VALUE")
    verb.add_argument("--json", action="store_true", help="print the forecast and the decision as JSON and nothing else")
    verb.add_argument("--prompt", action="store_true", help="print what the model would be asked, and ask nothing")
    verb.add_argument("--hardware", action="store_true", help="list the processors that are described")
    verb.set_defaults(run=_forecast)


def parse_options(words: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` words as a dictionary.

    Raises
    ------
    TaskError
        If a word is not ``KEY=VALUE`` or a key stands twice.
    """
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise TaskError(f"found {word!r}, expected KEY=VALUE (kfs forecast --help)")
        if key in options:
            raise TaskError(f"{key}= is given twice: {options[key]!r} and {value!r}")
        options[key] = value
    return options


def make_model(name: str, words: dict[str, str]) -> LanguageModel:
    """A forecaster that reads prompts, its options given as text.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster or option.
    SchemaError
        If the forecaster learns from pairs, or a value has the wrong type.
    """
    from kfs.forecast import FORECASTERS, make
    from kfs.forecast.language import LanguageModel

    if name not in FORECASTERS:
        raise unknown_name("forecaster", name, FORECASTERS, "kfs/forecast")
    kind = FORECASTERS[name]
    readers = sorted(n for n, k in FORECASTERS.items() if issubclass(k, LanguageModel))
    if name not in readers:
        raise SchemaError(f"forecaster {name!r} learns from measured pairs; here one of {', '.join(readers)} (others: kfs study)")
    return make(name, **_typed(kind, words))


def _typed(kind: type, words: dict[str, str]) -> dict[str, Any]:
    """Options as the forecaster's dataclass types them."""
    from typing import get_args, get_type_hints

    import yaml

    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind) if f.init]
    values = {}
    for key, text in words.items():
        if key not in known:
            raise unknown_name(f"option of forecaster {kind.name!r}", key, [*known, *_OWN], "kfs forecast --help")
        allowed = [t for t in (get_args(hints[key]) or (hints[key],)) if isinstance(t, type)] or [str]
        value = text if allowed == [str] else yaml.safe_load(text)
        value = float(value) if float in allowed and isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(value, tuple(allowed)) or (isinstance(value, bool) and bool not in allowed):
            wanted = " or ".join("null" if t is type(None) else t.__name__ for t in allowed)
            raise SchemaError(f"{key}={text}: expected {wanted}")
        values[key] = value
    return values


def this_hardware() -> Hardware:
    """The machine at hand: its GPU where torch sees one, as ``conf/hardware`` describes it if it does, else its processor."""
    import torch

    from kfs.bench.machine import this_cpu
    from kfs.bench.processors import hardware_names, load_hardware
    from kfs.records import Hardware

    if not torch.cuda.is_available():
        return this_cpu()
    facts = torch.cuda.get_device_properties(0)
    words = re.sub(r"[^a-z0-9]+", " ", facts.name.lower()).split()
    if described := [name for name in hardware_names() if name in words or f"rtx{name}" in "".join(words)]:
        return load_hardware(described[0])
    return Hardware(
        name="-".join(words),
        title=facts.name,
        vendor="NVIDIA" if torch.version.cuda else "AMD",
        architecture=f"sm_{facts.major}{facts.minor}" if torch.version.cuda else "unknown",
        kind="gpu",
        units=facts.multi_processor_count,
        memory_gb=round(facts.total_memory / 1e9, 1),
        sources=["torch.cuda.get_device_properties"],
    )


def _forecast(args: argparse.Namespace) -> int:
    if args.hardware:
        return _list_hardware()
    if not args.reference or not args.candidate:
        raise TaskError("give two files: kfs forecast REFERENCE CANDIDATE [KEY=VALUE ...] (kfs forecast --help)")
    options = parse_options(args.options)

    from kfs.forecast.cache import AnswerCache

    model = make_model(options.get("forecaster", "local"), {k: v for k, v in options.items() if k not in _OWN})
    price = _price(options.get("price"))
    query, place = _query(args, options, model)
    if args.prompt:
        for message in model.prompt(query).messages:
            print(f"--- {message['role']}\n{message['content']}")
        return 0
    from kfs.data.manifest import cache_folder

    with contextlib.closing(AnswerCache(cache_folder() / "forecasts" / "answers.sqlite")) as cache:
        (found,) = model.forecast([query], cache=cache)
    decision = _decision(found, price)
    if args.json:
        values = {key: value for key, value in decision.items() if key != "words"}
        print(json.dumps({"forecast": found.model_dump(mode="json"), **values}, indent=1))
    else:
        print(f"{args.candidate} against {args.reference} on {place}, by {model.name}")
        print(chart(found))
        print("\n".join(f"{name:8} {value}" for name, value in decision["words"]))
    return 1 if found.parse_failed else 0


def _query(args: argparse.Namespace, options: dict[str, str], model: LanguageModel) -> tuple[Query, str]:
    """The question, and the hardware in words."""
    from kfs.bench.adapters import load_task
    from kfs.bench.processors import load_hardware
    from kfs.forecast.query import Query
    from kfs.records import content_id

    name = options.get("hardware", "this")
    hardware = this_hardware() if name == "this" else load_hardware(name)
    model.processors[hardware.name] = hardware
    task = load_task(options["task"]) if "task" in options else None
    if task:
        model.tasks[task.name] = task
    (anchor, anchor_language), (candidate, language) = (_source(path) for path in (args.reference, args.candidate))
    return Query(
        comparison_id=content_id(hardware.name, task.name if task else "", anchor, candidate),
        pack=task.name if task else "unknown",
        hardware=hardware.name,
        title=task.title if task else "",
        signature=task.signature if task else "",
        anchor_code=anchor,
        candidate_code=candidate,
        language=language,
        anchor_language=anchor_language if anchor_language != language else "",
    ), hardware.title or hardware.name


def _source(path: str) -> tuple[str, str]:
    """A file's text and language. It is read and never run."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read as text ({error})") from error
    if not text.strip():
        raise TaskError(f"{path} is empty; give a kernel's source")
    if Path(path).suffix in (".cu", ".cuh"):
        return text, "cuda"
    return text, "triton" if "triton.jit" in text else "python"


def _price(text: str | None) -> float:
    try:
        price = PRICE if text is None else float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise TaskError(f"price={text}: expected a number of bins, 0 or more")
    return price


def _decision(found: Forecast, price: float) -> dict[str, Any]:
    """Trust or measure, and why, as values and as words."""
    from kfs.forecast.decide import by_cost, expected_losses
    from kfs.speedup import STUDY_BINS

    notes = [("note", found.reasoning)] if found.reasoning else []
    if found.parse_failed:
        return {"decision": "measure", "why": found.parse_error, "words": [("decision", "measure: no forecast"), *notes]}
    loss = float(expected_losses([found.probabilities])[0])
    trusted = bool(by_cost([loss], price)[0])
    expected = float(STUDY_BINS.expected_speedup(found.probabilities))
    likeliest = found.predicted_bin
    decision = "trust" if trusted else "measure"
    why = (
        f"it expects to be {loss:.2g} bins off, {'no' if trusted else ''} more than {price:g}; its own word, not calibrated"
    ).replace("  ", " ")
    rows = [
        ("expected", f"a speedup of {expected:.3g}"),
        ("likeliest", f"bin {likeliest}, {STUDY_BINS.names[likeliest - 1]}, with {found.probabilities[likeliest - 1]:.0%}"),
        (decision, why),
        *notes,
    ]
    return {
        "expected_speedup": expected,
        "expected_loss_bins": loss,
        "price_bins": price,
        "decision": decision,
        "why": why,
        "words": rows,
    }


def chart(found: Forecast) -> str:
    """The distribution as bars for a terminal, a line a bin; the reason where there is none."""
    from kfs.speedup import STUDY_BINS

    if found.parse_failed:
        return f"no forecast: {found.parse_error}"
    longest = max(found.probabilities)
    lines = []
    for row, p in zip(STUDY_BINS.table(), found.probabilities, strict=True):
        eighths = round(8 * _BAR * p / longest)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        lines.append(f"{row['bin']} {row['interval']:20} {p:6.1%} {bar}")
    return "\n".join(lines)


def _list_hardware() -> int:
    from kfs.bench.processors import hardware_names, load_hardware

    for name in hardware_names():
        h = load_hardware(name)
        print(f"{name:10} {h.title:36} {h.architecture:8} {h.memory_bandwidth_gb_s or 0:6g} GB/s")
    return 0
