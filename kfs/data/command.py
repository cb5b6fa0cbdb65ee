"""``kfs data list | pull | verify | export``: the command line of the public data. The work is done by the modules beside it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from kfs.data import manifest
from kfs.errors import unknown_name


def add_parser(subparsers) -> argparse.ArgumentParser:
    """Register the verb ``data``; the parsed arguments carry ``run(args) -> int``, the exit status.

    Parameters
    ----------
    subparsers : object
        What ``argparse.ArgumentParser.add_subparsers`` returned.
    """
    parser = subparsers.add_parser(
        "data",
        help="list, fetch, verify and export data",
        description="Public data: what there is, fetching it, checking it byte for byte; and exporting records.",
        epilog="KFS_CACHE: where fetched files are kept (default ~/.cache/kfs). "
        "KFS_MIRROR: a folder asked before the network, laid out as <owner>/<repo>/<commit>/<path>.",
    )
    verbs = parser.add_subparsers(dest="data_verb", metavar="VERB", required=True)

    show = verbs.add_parser("list", help="datasets, their licences and sizes, and where they are")
    show.add_argument("--files", action="store_true", help="also every file, with size and sha256")
    show.add_argument("--json", action="store_true", help="machine-readable")
    show.set_defaults(run=_list)

    pull = verbs.add_parser("pull", help="fetch datasets into the cache and verify them")
    pull.add_argument("names", nargs="+", metavar="NAME", help="dataset, as `kfs data list` names it; or all")
    pull.add_argument("--file", action="append", metavar="FILE", help="only this file of it, for example a100.json; repeatable")
    pull.set_defaults(run=_pull)

    verify = verbs.add_parser(
        "verify",
        help="hash files and compare them with the manifest; exit status 1 on any fault",
        description="Without arguments: everything in the mirror and the cache. A name: that dataset, and a missing file is a "
        "fault. A path: that file, or every file under that folder.",
    )
    verify.add_argument("targets", nargs="*", metavar="NAME|PATH", help="dataset, file or folder")
    verify.set_defaults(run=_verify)

    export = verbs.add_parser("export", help="write Pair and Forecast records as a publishable folder with a dataset card")
    export.add_argument("records", nargs="+", metavar="RECORDS", help=".parquet or .jsonl file of Pair or Forecast records")
    export.add_argument("--out", required=True, metavar="FOLDER", help="new folder to write")
    export.add_argument("--licence", required=True, help="licence of the data, for example MIT")
    export.add_argument("--title", default="Kernel speedup forecasts", help="heading of the card (default: %(default)s)")
    export.add_argument("--provenance", default="", help="where the records come from, in a sentence")
    export.set_defaults(run=_export)
    return parser


def _list(args: argparse.Namespace) -> int:
    rows = manifest.status()
    if args.json:
        if args.files:
            files = {d.name: [vars(f) for f in d.files] for d in manifest.datasets().values()}
            rows = [{**row, "files": files[row["name"]]} for row in rows]
        print(json.dumps(rows, indent=2))
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f} MB"
        print(f"{row['name']:{width}}  {row['where']:7}  {size:>8}  {row['files']} files  {row['licence']:10}  {row['title']}")
        if args.files:
            for file in manifest.dataset(row["name"]).files:
                print(f"{'':{width}}  {file.bytes:>10}  {file.sha256}  {file.path}")
    absent = [row["name"] for row in rows if row["where"] in ("absent", "partly", "faulty")]
    if absent:
        print(f"not whole on this machine: {', '.join(absent)}; `kfs data pull NAME` fetches one")
    return 0


def _pull(args: argparse.Namespace) -> int:
    from kfs.data.fetch import pull

    names = list(manifest.datasets()) if args.names == ["all"] else args.names
    for name in names:
        manifest.dataset(name)  # an unknown name stops before anything is fetched
    for name in names:
        pull(name, files=args.file, progress=sys.stderr.isatty(), report=lambda line, name=name: print(f"{name}: {line}"))
    return 0


def _verify(args: argparse.Namespace) -> int:
    known = manifest.datasets()
    findings = [] if args.targets else manifest.verify()
    for target in args.targets:
        if target in known:
            findings += manifest.verify(target)
        elif os.path.lexists(target) or os.sep in target or Path(target).suffix:
            findings += manifest.verify(paths=[target])
        else:
            raise unknown_name("dataset", target, known, "data/manifest.yaml; nor is there a file or folder of that name")
    for f in findings:
        print(f"{'FAULT' if f.fault else '  ok ' if f.state == 'ok' else '  -  '}  {f.path}: {f.message}")
    faults = sum(f.fault for f in findings)
    right = sum(f.state == "ok" for f in findings)
    print(f"{right} of {len(findings)} files verified" + (f", {faults} at fault" if faults else ""))
    return 1 if faults else 0


def _export(args: argparse.Namespace) -> int:
    from kfs.data.export import export

    folder = export(args.records, args.out, licence=args.licence, title=args.title, provenance=args.provenance)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        print(f"{path}  {path.stat().st_size} bytes")
    return 0
