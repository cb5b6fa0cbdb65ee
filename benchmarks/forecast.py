"""How fast kfs.forecast asks language models beside the loop a user would write, and what kfs itself costs.

Run it from the repository root on an otherwise idle machine: ``python -m benchmarks.forecast [--parts local endpoint overhead
cache] [--json FILE]``. All contenders of a part answer the same prompts in one run; where both give numbers they must agree.
A last table says which targets were met. Nothing here needs a GPU; ``endpoint`` needs the environment of ``make test-server``.

local       SmolLM2 in this process: prefixes shared and candidates in batches, against one whole prompt after another. The floor
            is the share of tokens that no other prompt has.
endpoint    SmolLM2 behind vLLM on this CPU: grouped and eight calls at once, against one call after another through the same
            client, in an order that was shuffled. The server's prefix cache is on for both and emptied before each. Readouts are
            bound by what the cores compute, however many are in flight; answers that are written, by memory.
overhead    kfs alone: prompts, keys, cache, parsing, for an instant model that answers with a fixed text. Cold: every answer is
            written; warm: every answer is read.
cache       Reads of kept answers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from kfs.forecast import make
from kfs.forecast.answer import Answer, Call
from kfs.forecast.cache import AnswerCache
from kfs.forecast.language import LanguageModel
from kfs.forecast.query import Query
from kfs.forecast.smollm2 import converted_smollm2
from kfs.tasks import load_task
from tests.server.vllm_server import VllmServer

ROOT = Path(__file__).resolve().parent.parent
PACKS = ("softmax", "rmsnorm", "cumsum")
CANDIDATES = 16
REPLY = json.dumps(
    {"reason": "one pass less over memory", "probabilities": [0.02, 0.03, 0.05, 0.2, 0.4, 0.2, 0.08, 0.02], "bin": 5}
)


def queries_of(packs=PACKS, candidates=CANDIDATES) -> list[Query]:
    """The shortest candidates of each reference, ``candidates`` apiece."""
    found = []
    for pack in packs:
        task = load_task(pack)
        for k in sorted(task.kernels("host"), key=lambda k: len(k.source))[:candidates]:
            ask = (f"{pack} {k.kernel_id}", pack, "h100", task.title, task.signature, task.reference.source, k.source)
            found.append(Query(*ask))
    return found


def timed(call) -> tuple[float, object]:
    begin = time.perf_counter()
    value = call()
    return time.perf_counter() - begin, value


def local_part(runs: int) -> dict:
    """Shared prefixes and batches against whole prompts; the best of ``runs``, in turn."""
    import torch

    queries = queries_of()
    ours = {batch: make("local", device="cpu", batch=batch) for batch in (1, 8)}
    model, tokens = ours[1]._model, list(ours[1]._answer[1])
    for other in ours.values():
        other.__dict__["_model"] = model
    prompts = [ours[1].prompt(q) for q in queries]
    parts = [ours[1].parts(p) for p in prompts]

    def one_by_one() -> np.ndarray:
        rows = []
        with torch.inference_mode():
            for part in parts:
                logits = model(torch.tensor([[t for p in part for t in p]]), use_cache=False, logits_to_keep=1).logits[0, -1]
                rows.append(torch.softmax(logits.double()[tokens], dim=-1).numpy())
        return np.array(rows)

    contenders = {"one by one": one_by_one}
    for batch, forecaster in ours.items():
        contenders[f"batch {batch}"] = lambda f=forecaster: np.array([a.probabilities for a in f.forecast(queries)])
    best, values = dict.fromkeys(contenders, np.inf), {}
    model(torch.tensor([list(parts[0][0])]))
    for _ in range(runs):
        for name, call in contenders.items():
            seconds, values[name] = timed(call)
            best[name] = min(best[name], seconds)
    apart = max(float(np.abs(v - values["one by one"]).max()) for v in values.values())
    if apart > 1e-3:
        raise SystemExit(f"local: probabilities differ by {apart:.2g} between ways of computing them")
    products_s = min(timed(lambda: _products(model, [sum(map(len, p)) for p in parts]))[0] for _ in range(runs))
    whole = sum(len(t) for p in parts for t in p)
    own = (
        sum(len(t) for t in {p[0] for p in parts})
        + sum(len(p[1]) for p in {p[:2] for p in parts})
        + sum(len(p[2]) for p in parts)
    )
    return {
        "forecasts": len(queries),
        "seconds": best,
        "largest_difference": apart,
        "tokens": whole,
        "tokens_not_shared": own,
        "products_s": products_s,
        "floor_ratio": whole / own,
        "ratio": best["one by one"] / min(best["batch 1"], best["batch 8"]),
    }


def _products(model, lengths: list[int]) -> None:
    """The matrix products of the layers' linear maps alone, for prompts of so many tokens: the least they can cost here."""
    import torch

    maps = [m for m in model.model.layers.modules() if isinstance(m, torch.nn.Linear)]
    with torch.inference_mode():
        for n in lengths:
            inputs = {m.in_features: torch.ones(n, m.in_features) for m in maps}
            for m in maps:
                m(inputs[m.in_features])


def endpoint_part(python: str, candidates: int, forms: list[str]) -> dict:
    """Verbal answers and readouts of a real server, ours and one after another."""
    found: dict = {}
    queries = queries_of(candidates=candidates)
    with tempfile.TemporaryDirectory() as folder:
        server = VllmServer(python, converted_smollm2(), Path(folder) / "server.log")
        try:
            server.start()
            for form in forms:
                found[form] = _both_ways(server, queries, form)
        finally:
            server.kill()
    return found


def _both_ways(server: VllmServer, queries: list[Query], form: str) -> dict:
    common = {"base_url": server.url, "form": form, "max_output_tokens": 300}
    make("endpoint", **common).forecast(queries[:1])  # what a first call compiles is nobody's time
    found: dict = {"forecasts": len(queries)}
    shuffled = random.Random(0).sample(queries, len(queries))
    alone = make("endpoint", concurrency=1, **common)
    ways = {
        "one by one": lambda: [alone.forecast([q])[0] for q in shuffled],
        "kfs": lambda: make("endpoint", concurrency=8, **common).forecast(queries),
    }
    for name, call in ways.items():
        server.forget_prefixes()
        hits = server.metric("prefix_cache_hits_total")
        seconds, forecasts = timed(call)
        hits = server.metric("prefix_cache_hits_total") - hits
        found[name] = {
            "seconds": seconds,
            "output_tokens": sum(f.output_tokens for f in forecasts),
            "input_tokens": sum(f.input_tokens for f in forecasts),
            "prefix_hit_tokens": hits,
            "failed": sum(f.parse_failed for f in forecasts),
        }
    found["ratio"] = found["one by one"]["seconds"] / found["kfs"]["seconds"]
    return found


@dataclass
class InstantFakeModel(LanguageModel):
    """No model: a fixed reply at once, so that what is left is kfs."""

    name: ClassVar[str] = "instant fake"

    def model_id(self) -> str:
        return "instant"

    def ask(self, calls: list[Call], done) -> None:
        for call in calls:
            done(call, Answer(REPLY, input_tokens=500, output_tokens=60, elapsed_s=0.0, finish_reason="stop"))


def overhead_part(n: int) -> dict:
    """Milliseconds of kfs a forecast, with every answer written and with every answer read."""
    tasks = [(t, list(t.kernels("host"))) for t in map(load_task, PACKS)]
    queries = []
    for i in range(n):
        task, kernels = tasks[i % len(tasks)]
        k = kernels[i // len(tasks) % len(kernels)]
        source = f"{k.source}\n# {i}"  # of a prompt of its own
        queries.append(Query(str(i), task.name, "h100", task.title, task.signature, task.reference.source, source))
    found: dict = {"forecasts": n}
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(AnswerCache(Path(folder) / "answers.sqlite")) as cache:
        for name in ("cold", "warm"):
            seconds, forecasts = timed(lambda: InstantFakeModel().forecast(queries, cache=cache))
            assert len(forecasts) == n and not any(f.parse_failed for f in forecasts) and len(cache) == n
            found[f"{name}_ms"] = 1e3 * seconds / n
    return found


def cache_part(n: int) -> dict:
    """Seconds of ``n`` reads, as the study reads (keys together) and one key at a time."""
    keys = [f"{i:032x}" for i in range(n)]
    value = Answer(REPLY, input_tokens=500, output_tokens=60, elapsed_s=1.0).dumps()
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(AnswerCache(Path(folder) / "answers.sqlite")) as cache:
        wrote, _ = timed(lambda: cache.put(dict.fromkeys(keys, value)))
        order = random.Random(0).sample(keys, n)
        together, kept = timed(lambda: {k: Answer.loads(v) for k, v in cache.get(order).items()})
        alone, _ = timed(lambda: [cache.get([k]) for k in order])
        assert len(kept) == n
    return {"reads": n, "written_s": wrote, "together_and_parsed_s": together, "one_by_one_s": alone}


def report(found: dict) -> str:
    """Figures, then targets."""
    lines, targets = [], []
    if part := found.get("local"):
        for name, seconds in part["seconds"].items():
            lines.append(f"local, {name:11s} {seconds:7.2f} s for {part['forecasts']} readouts, {CANDIDATES} a reference")
        lines.append(
            f"local, tokens      {part['tokens']} in whole prompts, {part['tokens_not_shared']} not shared: "
            f"no more than {part['floor_ratio']:.2f} times; largest difference of a probability {part['largest_difference']:.1e}"
        )
        one = part["seconds"]["one by one"]
        lines.append(
            f"local, products    {part['products_s']:7.2f} s for the layers' matrix products alone on the whole prompts: "
            f"{part['products_s'] / one:.0%} of one by one, {one / part['forecasts']:.2f} s a prompt of "
            f"{part['tokens'] / part['forecasts']:.0f} tokens"
        )
        targets.append(("local, shared prefixes and batches over one by one", part["ratio"], 2.0, True))
    for form, part in (found.get("endpoint") or {}).items():
        for name in ("one by one", "kfs"):
            p = part[name]
            lines.append(
                f"endpoint, {form}, {name:11s} {p['seconds']:7.2f} s for {part['forecasts']} forecasts, {p['output_tokens']} "
                f"tokens out, {p['prefix_hit_tokens']:.0f} of {p['input_tokens']} in from the prefix cache, {p['failed']} unread"
            )
        targets.append((f"endpoint, {form}, kfs over one by one", part["ratio"], 3.0, True))
    if part := found.get("overhead"):
        lines.append(
            f"overhead           {part['forecasts']} forecasts: {part['cold_ms']:.3f} ms each cold, {part['warm_ms']:.3f} ms warm"
        )
        targets.append(("overhead, ms a forecast, cold", part["cold_ms"], 2.0, False))
    if part := found.get("cache"):
        lines.append(
            f"cache              {part['reads']} reads: {part['together_and_parsed_s']:.2f} s together and parsed, "
            f"{part['one_by_one_s']:.2f} s one by one; written in {part['written_s']:.2f} s"
        )
        targets.append(("cache, s for all reads, one by one", part["one_by_one_s"], 5.0, False))
    lines.append("")
    for name, value, target, more in targets:
        met = value >= target if more else value <= target
        lines.append(f"{name:52s}{value:8.2f}   target {'>=' if more else '<='} {target:g}   {'met' if met else 'MISSED'}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = ("local", "endpoint", "overhead", "cache")
    parser.add_argument("--parts", nargs="+", choices=every, default=every)
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender of `local`; the best counts")
    parser.add_argument("--candidates", type=int, default=8, help="of each of three references, in `endpoint`")
    parser.add_argument("--forms", nargs="+", choices=("readout", "verbal"), default=("readout", "verbal"), help="of `endpoint`")
    parser.add_argument("--python", default=str(ROOT / ".venv-vllm" / "bin" / "python"), help="Python that has vLLM")
    parser.add_argument("--json", help="also write all figures to this file")
    options = parser.parse_args()
    found = {}
    for part in options.parts:
        if part == "local":
            found[part] = local_part(options.runs)
        if part == "endpoint":
            if not Path(options.python).is_file():
                raise SystemExit(
                    f"endpoint: no {options.python}; make it with `make test-server`, or leave the part out with --parts"
                )
            found[part] = endpoint_part(options.python, options.candidates, options.forms)
        if part == "overhead":
            found[part] = overhead_part(10**4)
        if part == "cache":
            found[part] = cache_part(10**5)
    print(report(found))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()})")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
