"""The ``kfs`` command: one verb a room. Each room registers its own verbs; heavy libraries load inside them."""

from __future__ import annotations

import argparse
import os
import sys

import kfs
from kfs.errors import KfsError


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from kfs import doctor
    from kfs.bench import command as bench
    from kfs.bench import compile_command, measure_command
    from kfs.data import command as data
    from kfs.forecast import command as forecast
    from kfs.report import command as report
    from kfs.report import training

    top = argparse.ArgumentParser(
        prog="kfs", description="Forecast how fast a kernel will run by reading it, and know when to measure instead."
    )
    top.add_argument("--version", action="version", version=f"kfs {kfs.__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True)
    for room in (report, bench, compile_command, measure_command, forecast, training, data, doctor):
        room.add_parser(verbs)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one verb; the exit status. An error of ours is one line on standard error, without a traceback."""
    args = parser().parse_args(argv)
    try:
        return args.run(args)
    except KfsError as error:
        print(f"kfs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kfs: interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
