"""``kfs compile``: what a compiler says about GPU kernels, without a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kfs.errors import TaskError, unknown_name

if TYPE_CHECKING:
    from kfs.bench.facts import Facts
    from kfs.records import Kernel
    from kfs.tasks import Case, Task

_KEYS = ("arch", "task", "case", "preset", "hardware", "deadline")
FAMILY_ARCHITECTURES = ("sm_90", "sm_80")


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Register the verb ``compile``."""
    verb = verbs.add_parser(
        "compile",
        help="registers, spills, shared memory, instructions and occupancy of a Triton or CUDA C++ file; needs no GPU",
        description="Compile a Triton (.py) or CUDA C++ (.cu) kernel, or the CUDA C++ in the strings of a Python module, which "
        "is not run, and say what the compiler made of it. No GPU is needed.",
        epilog="KEY=VALUE: arch=sm_90 (sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_120), task=NAME or folder (default: the "
        "one whose folder holds the file), preset=paper, case=0 (index in the preset), hardware=h200 (a file of conf/hardware), "
        "deadline=60 (seconds).",
    )
    verb.add_argument("words", nargs="*", metavar="FILE|KEY=VALUE", help="a file, then options")
    verb.add_argument("--json", action="store_true", help="print the facts as JSON lines")
    verb.add_argument(
        "--families", action="store_true", help="compile every CUDA kernel of the tasks (or of task=NAME) for sm_80 and sm_90"
    )
    verb.add_argument(
        "--out", type=Path, default=Path("data/compiled/facts.parquet"), help="where --families writes (default %(default)s)"
    )
    verb.set_defaults(run=_compile)


def _compile(args: argparse.Namespace) -> int:
    files, options = [w for w in args.words if "=" not in w], dict(w.split("=", 1) for w in args.words if "=" in w)
    for key in options:
        if key not in _KEYS:
            raise unknown_name("option", key, _KEYS, "kfs compile --help")
    if args.families:
        if files:
            raise TaskError(f"--families compiles the tasks' own kernels; leave {files[0]!r} out")
        return _families(args.out, options)
    if len(files) != 1:
        raise TaskError(f"kfs compile takes one file, found {len(files)}: kfs compile FILE arch=sm_90, or kfs compile --families")
    return _file(Path(files[0]), options, as_json=args.json)


def _file(path: Path, options: dict[str, str], *, as_json: bool) -> int:
    from kfs.bench.compile import compile_kernel
    from kfs.bench.facts import prompt_section
    from kfs.tasks import expand_variants, language_of

    if not path.is_file() or path.suffix not in (".py", ".cu"):
        raise TaskError(f"{path}: no such file; give a Triton (.py) or CUDA C++ (.cu) kernel")
    task, language = _task_of(path, options), language_of(path)
    if language == "triton" and task is None:
        raise TaskError(f"{path}: a Triton kernel is compiled for a task's shapes and lies in no task's folder; add task=NAME")
    case = _case(task, options) if task else None
    kernels = expand_variants(path, task=task.name if task else "", language=language)
    failed = 0
    with _zygote_for(kernels) as zygote:
        for kernel in kernels:
            made = compile_kernel(kernel, task=task, case=case, zygote=zygote, **_compile_options(options))
            failed += made.status != "ok"
            if as_json:
                print(made.model_dump_json())
            else:
                print(f"{kernel.name}\n{prompt_section(made)}\nTook {made.seconds:.2f} s when it was compiled.")
    return 1 if failed else 0


def _task_of(path: Path, options: dict[str, str]) -> Task | None:
    from kfs.tasks import load_task

    if "task" in options:
        return load_task(options["task"])
    folder = path.resolve().parent
    return load_task(folder.parent) if folder.name == "cuda" and (folder.parent / "task.py").is_file() else None


def _case(task: Task, options: dict[str, str]) -> Case:
    cases = task.preset(options.get("preset", "paper"))
    index = options.get("case", "0")
    if not index.isdecimal() or int(index) >= len(cases):
        known = ", ".join(f"{i} ({c.name})" for i, c in enumerate(cases))
        raise TaskError(f"case={index} of task {task.name!r} does not exist; known: {known}")
    return cases[int(index)]


def _compile_options(options: dict[str, str]) -> dict:
    deadline = options.get("deadline", "60")
    try:
        seconds = float(deadline)
    except ValueError:
        raise TaskError(f"deadline={deadline} is not a number of seconds") from None
    return {"arch": options.get("arch", "sm_90"), "hardware": options.get("hardware"), "deadline_s": seconds}


def _zygote_for(kernels: Sequence[Kernel]):
    """One zygote for several Triton kernels; none where each is compiled without, or there is one."""
    from contextlib import nullcontext

    from kfs.bench.sandbox import Zygote

    return Zygote() if sum(k.language == "triton" for k in kernels) > 1 else nullcontext()


def _families(out: Path, options: dict[str, str]) -> int:
    """Compile every family kernel; what is cached is not compiled again, so a killed run goes on where it was."""
    from tqdm import tqdm

    from kfs.bench.compile import compile_kernel
    from kfs.records import write_records
    from kfs.tasks import load_task, task_names

    tasks = [load_task(options["task"])] if "task" in options else [load_task(name) for name in task_names()]
    arches = [options["arch"]] if "arch" in options else FAMILY_ARCHITECTURES
    work = [(t, k, arch) for arch in arches for t in tasks for k in t.kernels("cuda") if k.language in ("triton", "cuda")]
    if not work:
        raise TaskError(f"{', '.join(t.name for t in tasks)}: no Triton or CUDA C++ kernel in a cuda folder")
    found: list[Facts] = []
    with _zygote_for([k for _, k, _ in work]) as zygote, tqdm(work, unit="kernel", mininterval=1.0) as bar:
        for task, kernel, arch in bar:
            bar.set_postfix_str(f"{task.name} {kernel.name} {arch}", refresh=False)
            chosen = _compile_options({**options, "arch": arch})
            made = compile_kernel(kernel, task=task, case=_case(task, options), zygote=zygote, **chosen)
            found.append(made)
            if made.status != "ok":
                tqdm.write(f"{task.name} {kernel.name} {arch}: {made.status} at {made.stage}: {made.reason}")
    write_records(found, out)
    failed = sum(f.status != "ok" for f in found)
    print(f"{len(found)} facts of {len({f.kernel_id for f in found})} kernels, {failed} that do not compile: {out}")
    return 1 if failed else 0
