"""What a prompt may say of a question beyond its two sources: cases, the hardware's figures, speed of light, compiler facts.

Gathered from tasks, ``conf/hardware`` and the compiler (no GPU is asked); what is not known is left out. Forecasters that read
prompts come here, and ``boosted_facts`` for the compiler facts.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kfs.errors import KfsError
from kfs.forecast.query import Query, languages
from kfs.records import Hardware, Kernel, read_records
from kfs.tasks import Case, Task, load_task, task_names

if TYPE_CHECKING:
    from kfs.bench.facts import Facts

_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")


@dataclass(frozen=True)
class Context:
    """Texts for a prompt; empty where nothing is known or it was not asked for."""

    cases: tuple[str, ...] = ()
    """One a benchmark case."""
    hardware: str = ""
    reference_facts: str = ""
    candidate_facts: str = ""


def context_of(
    query: Query,
    *,
    cases: bool,
    hardware: bool,
    light: bool,
    facts: bool,
    task: Task | None = None,
    processor: Hardware | None = None,
) -> Context:
    """Gather what is asked for.

    Parameters
    ----------
    query : Query
    cases, hardware, light, facts : bool
        What to gather: benchmark cases; the hardware's figures; the time of each case that no kernel can beat; what a compiler
        makes of sources that hold Triton or CUDA C++.
    task : Task, optional
        The query's task; by default the one of kfs that its pack names, if any.
    processor : Hardware, optional
        What the query's hardware is; by default what its name says, if it is known.
    """
    task = task or task_of(query.pack)
    found = processor or processor_of(query.hardware)
    return Context(
        _cases(task, found, query.hardware, light) if cases and task else (),
        _figures(found) if hardware and found else "",
        *(_facts(getattr(query, side), language, task, found) if facts else "" for side, language in languages(query).items()),
    )


@lru_cache(maxsize=1024)
def task_of(pack: str) -> Task | None:
    """The task of kfs that a pack names, or None. Looking for it reads a folder."""
    return load_task(pack) if pack in task_names() else None


@lru_cache(maxsize=256)
def processor_of(name: str) -> Hardware | None:
    """A processor that records were measured on, one of ``conf/hardware``, or None."""
    from kfs.bench.processors import load_hardware
    from kfs.pairs import RECORDS

    recorded = RECORDS / name / "hardware.jsonl"
    if recorded.is_file():
        return read_records(Hardware, recorded)[0]
    try:
        return load_hardware(name)
    except KfsError:
        return None


def _figures(found: Hardware) -> str:
    """A processor in one line, for example ``NVIDIA H100 (sm_90): 132 multiprocessors, 3350 GB/s, ...``."""
    unit = "cores" if found.kind == "cpu" else "multiprocessors" if found.vendor == "NVIDIA" else "compute units"
    peaks = ", ".join(f"{name} {found.peak_tflops[name]:g}" for name in _FORMATS if name in found.peak_tflops)
    parts = (
        f"{found.units} {unit}" if found.units else "",
        f"{found.memory_gb:g} GB of memory" if found.memory_gb else "",
        f"{found.memory_bandwidth_gb_s:g} GB/s" if found.memory_bandwidth_gb_s else "",
        f"{found.cache_mb:g} MB of last-level cache" if found.cache_mb else "",
        f"{found.clock_mhz:g} MHz" if found.clock_mhz else "",
        f"dense peak in TFLOP/s: {peaks}" if peaks else "",
        "one thread of one core is used" if found.kind == "cpu" else "",
    )
    return f"{found.title or found.name} ({found.architecture}): {', '.join(filter(None, parts))}"


def _cases(task: Task, found: Hardware | None, name: str, light: bool) -> tuple[str, ...]:
    preset = "host" if name.startswith("host-") or (found and found.kind == "cpu") else "paper"
    return tuple(_case(task, case, found if light else None) for case in task.preset(preset))


def _case(task: Task, case: Case, found: Hardware | None) -> str:
    from kfs.bench.processors import speed_of_light_us

    text = ", ".join(f"{k} {v}" for k, v in case.sizes.items())
    text += "" if case.distribution == "normal" else f"; inputs {case.distribution.replace('_', ' ')}"
    try:
        return f"{text}; no kernel can take less than {speed_of_light_us(task, case, found):.3g} us" if found else text
    except KfsError:  # a processor without the figures that takes
        return text


def _facts(source: str, language: str, task: Task | None, found: Hardware | None) -> str:
    """What the compiler says of a source, in words; empty where it says nothing."""
    from kfs.bench.facts import prompt_section

    facts = compiler_facts(source, language, found, task)
    return prompt_section(facts) if facts else ""


def compiler_facts(
    source: str, language: str, found: Hardware | None, task: Task | None = None, *, deadline_s: float = 60.0
) -> Facts | None:
    """What a compiler makes of a source, kept on disk by content; None where there is nothing it could compile.

    Compiled are CUDA C++, Triton for a task's shapes, and Python modules that hold CUDA C++ in their strings.

    Parameters
    ----------
    source, language : str
    found : Hardware or None
        What it would run on; kfs compiles for some GPUs (``kfs.bench.processors.ARCHITECTURES``).
    task : Task, optional
        Whose shapes a Triton kernel is compiled for.
    deadline_s : float, optional
        Wall time after which it is given up.
    """
    from kfs.bench.processors import ARCHITECTURES

    inline = language == "python" and "__global__" in source
    if found is None or found.architecture not in ARCHITECTURES or not (inline or language in ("triton", "cuda")):
        return None
    if language == "triton" and task is None:
        return None
    # by name, so that a study's notebooks do not depend on the source of the sandbox that compiles
    compile_kernel = importlib.import_module("kfs.bench.compile").compile_kernel
    about = {"task": task, "case": task.preset("paper")[0], "hardware": _described(found)} if task else {}
    return compile_kernel(Kernel(language=language, source=source), arch=found.architecture, deadline_s=deadline_s, **about)


def _described(found: Hardware) -> str | None:
    """Its name where ``conf/hardware`` has it: the compiler's facts tell the speed of light for those."""
    from kfs.bench.processors import hardware_names

    return found.name if found.name in hardware_names() else None
