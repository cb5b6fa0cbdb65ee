"""Forecasts and a model's answers on disk, found by content and only ever added to.

``ForecastCache``, of forecasters that learn, is a folder of chunks: files of JSON lines, each written whole or not at all.
``AnswerCache``, of language models, is one SQLite file; an answer is kept in a transaction of its own as soon as it is there. A
killed run has lost what was in flight and nothing else. Losing a cache loses time and money, never results; none is committed.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

from kfs.errors import SchemaError
from kfs.forecast.query import Query, languages
from kfs.records import Forecast, Pair, atomic_write, content_id

_SCHEMA = "create table if not exists answers (key text primary key, value text not null) without rowid"
_AT_ONCE = 500
_BUSY_S = 60.0


@cache
def code_version(module: str) -> str:
    """Digest of a module's source and of every module of its package that it imports, directly or through others."""
    package = module.partition(".")[0]
    texts, waiting = {}, [module]
    while waiting:
        name = waiting.pop()
        path = None if name in texts else _source_file(name)
        if path is not None:
            texts[name] = path.read_text(encoding="utf-8")
            waiting += [n for n in _imported(texts[name]) if n.partition(".")[0] == package]
    return content_id(*(part for name in sorted(texts) for part in (name, texts[name])))


def _imported(source: str) -> Iterator[str]:
    """Dotted names that a source imports at any depth, inside functions too, with every name that could be a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _source_file(name: str) -> Path | None:
    """A module's source; None for what is no module, such as a function imported from one."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin else None


def library_versions(names: Sequence[str]) -> str:
    """Names and versions of installed packages, for an identity; ``absent`` where one is not installed.

    Examples
    --------
    >>> library_versions(["no-such-package"])
    'no-such-package absent'
    """
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


@lru_cache(maxsize=100_000)
def _source_id(source: str) -> str:
    return content_id(source)


def query_key(query: Query) -> str:
    """Content id of everything a query says."""
    fields = {k: getattr(query, k) for k in query.__dataclass_fields__}
    fields |= {k: _source_id(fields[k]) for k in ("anchor_code", "candidate_code")}
    return content_id(json.dumps(fields, sort_keys=True))


def pairs_digest(*parts: Sequence[Pair]) -> str:
    """Content id of lists of pairs, in order: all that a fit can depend on."""
    rows = [
        json.dumps(
            [
                i,
                p.comparison_id,
                p.pack,
                p.hardware,
                *languages(p).values(),
                p.anchor_variant,
                p.candidate_variant,
                p.true_bin,
                p.aggregated_speedup,
                _source_id(p.anchor_code),
                _source_id(p.candidate_code),
            ]
        )
        for i, pairs in enumerate(parts)
        for p in pairs
    ]
    return content_id(*rows)


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock file, so that no other process computes, or pays for, the same at the same time; waits while one does.

    The operating system lets go of it when its holder ends, so a killed process leaves none. Where a file system has no locks,
    nothing is held: then work may be done, or paid for, twice, and results are the same.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile has it open, too


class ForecastCache:
    """The forecasts of one forecaster as it stood: options, code, libraries, model, training pairs.

    Parameters
    ----------
    folder : path
        One folder for each such identity; made at the first write.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._known: dict[str, Forecast] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), start=1):
                try:
                    row = json.loads(line)
                    self._known[row["query"]] = Forecast.model_validate(row["forecast"])
                except (KeyError, TypeError, ValueError) as error:
                    raise SchemaError(
                        f"{path}, line {number}: not a cached forecast ({error}); delete the file and run again"
                    ) from error

    def get(self, query: Query) -> Forecast | None:
        """The forecast of a query, or None."""
        return self._known.get(query_key(query))

    def add(self, queries: Sequence[Query], forecasts: Sequence[Forecast]) -> None:
        """Write one chunk, atomically, and remember it."""
        rows = {query_key(q): f for q, f in zip(queries, forecasts, strict=True)}
        if not rows:
            return
        lines = [json.dumps({"query": key, "forecast": f.model_dump(mode="json")}) for key, f in rows.items()]
        atomic_write(self.folder / f"{content_id(*rows)}.jsonl", ("\n".join(lines) + "\n").encode())
        self._known |= rows


class AnswerCache:
    """Text by key; several processes may use a file at once.

    Parameters
    ----------
    path : path
        The file; made at the first use, with its folder.

    Raises
    ------
    SchemaError
        If the file is no such cache; names it and what to do.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._reported():
            self._db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute("pragma synchronous=normal")  # a killed process loses nothing; a power cut, the last moments
            self._db.execute(_SCHEMA)

    def get(self, keys: Iterable[str]) -> dict[str, str]:
        """Values of those keys that are there."""
        keys, found = list(dict.fromkeys(keys)), {}
        with self._reported():
            for i in range(0, len(keys), _AT_ONCE):
                part = keys[i : i + _AT_ONCE]
                found |= self._db.execute(f"select key, value from answers where key in ({','.join('?' * len(part))})", part)
        return found

    def put(self, values: dict[str, str]) -> None:
        """Keep values, all or none of them; a key that is there keeps its value."""
        with self._reported():
            self._db.execute("begin immediate")
            try:
                self._db.executemany("insert or ignore into answers values (?, ?)", values.items())
            except BaseException:
                self._db.execute("rollback")
                raise
            self._db.execute("commit")

    def __len__(self) -> int:
        with self._reported():
            return self._db.execute("select count(*) from answers").fetchone()[0]

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise SchemaError(f"{self.path}: not a readable cache of answers ({error}); move it away and run again") from error
