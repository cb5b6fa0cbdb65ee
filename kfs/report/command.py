"""The verb ``kfs study``: one run, or a sweep of them with ``-m``."""

from __future__ import annotations

import argparse
import errno
import re
import sys

from kfs.errors import KfsError, StudyError

_DESCRIPTION = """Run a study's notebooks, each in its own process, and build its site.

What is done is kept under runs/NAME/DIGEST and not done again; a killed run continues where it stopped.
"""
_EXAMPLES = """examples:
  kfs study                                 the embedded study
  kfs study cuda_l1 debug=tiny              a small version, in about two minutes
  kfs study embedded forecaster=boosted     one forecaster alone
  kfs study embedded seed=0,1,2 -m          one run a seed
  kfs study published data.folder=FOLDER    the released forecasters, from clones of their sets
  kfs study embedded --config               every key, its value and what it means
"""


def add_parser(subparsers) -> argparse.ArgumentParser:
    """Add the verb ``study`` to the ``kfs`` command line."""
    parser = subparsers.add_parser(
        "study",
        help="run a study's notebooks and build its site",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", default="embedded", help="study, a file of conf/study (default: embedded)")
    parser.add_argument(
        "overrides", nargs=argparse.REMAINDER, help="config overrides, key=value; groups: study, data, forecaster, debug"
    )
    parser.add_argument("-m", "--multirun", action="store_true", help="run every combination of comma lists, one after another")
    parser.add_argument("-j", "--jobs", type=_count, metavar="N", help="notebooks at a time (default: one a core, four at most)")
    parser.add_argument("--config", action="store_true", help="print the composed configuration and stop")
    parser.set_defaults(run=run, study_parser=parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the verb; the exit status is 0 if every job finished."""
    overrides, rest = [], list(args.overrides)
    while rest:  # argparse itself takes no option between overrides
        word = rest.pop(0)
        if word in ("-m", "--multirun"):
            args.multirun = True
        elif word == "--config":
            args.config = True
        elif word in ("-h", "--help"):
            args.study_parser.print_help()
            return 0
        elif match := re.fullmatch(r"(?:-j|--jobs)=?(\w*)", word):
            try:
                args.jobs = _count(match[1] or (rest.pop(0) if rest else ""))
            except argparse.ArgumentTypeError as error:
                args.study_parser.error(f"argument -j/--jobs: {error}")
        elif word.startswith("-"):
            args.study_parser.error(f"unknown option {word}; known: -m, --multirun, -j, --jobs, --config, -h, --help")
        else:
            overrides.append(word)
    name = args.name
    if "=" in name or name.startswith(("+", "~")):
        name, overrides = "embedded", [name, *overrides]
    try:
        if args.config:
            from kfs.report.config import compose, describe

            print(describe(compose(name, overrides)), end="")
            return 0
        return _sweep(name, overrides, args.jobs) if args.multirun else _one(name, overrides, args.jobs)
    except KfsError as error:
        print(f"kfs study: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nkfs study: stopped; what is done is kept, the same command continues", file=sys.stderr)
        return 130


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from 1")
    return int(text)


def _one(name: str, overrides: list[str], jobs: int | None) -> int:
    from kfs.report.study import run_study

    try:
        outcome = run_study(name, overrides, jobs=jobs)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StudyError(
            f"no space left on the disk ({error.filename}); free some and run the same command: it continues"
        ) from error
    done = f"ran {len(outcome.ran)} notebooks in {outcome.seconds:.0f} s"
    kept = f", kept {len(outcome.skipped)} unchanged" if outcome.skipped else ""
    print(f"{done}{kept}" if outcome.ran else "nothing to do: every notebook is unchanged and its outputs are intact")
    print(f"site: {outcome.index}")
    return 0


def _sweep(name: str, overrides: list[str], jobs: int | None) -> int:
    from kfs.report.config import sweep

    every = sweep([f"study={name}", *overrides])
    lines, failed = [], 0
    for i, job in enumerate(every, start=1):
        study, rest = job[0].partition("=")[2], job[1:]
        label = " ".join([study, *rest])
        print(f"== job {i} of {len(every)}: {label}", flush=True)
        try:
            _one(study, rest, jobs)
            lines.append(f"ok      {label}")
        except Exception as error:  # one bad job must not cost the others; its first line is reported
            failed += 1
            first = (str(error) or repr(error)).splitlines()[0]
            print(f"kfs study: {error}", file=sys.stderr)
            lines.append(f"FAILED  {label}: {first}")
    print("\n".join(["", *lines, f"{len(every) - failed} of {len(every)} jobs finished"]))
    return 1 if failed else 0
