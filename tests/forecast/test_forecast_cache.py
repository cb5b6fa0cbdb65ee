import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import kfs.forecast
from kfs.errors import SchemaError
from kfs.forecast import run_folds
from kfs.forecast.cache import code_version, library_versions, one_at_a_time
from kfs.forecast.prior import Prior


@pytest.fixture
def fold(rng, made_up_fold):
    return made_up_fold(rng)


@pytest.fixture
def counted(monkeypatch):
    """The prior in small chunks, its calls recorded."""
    calls = {"fit": 0, "queries": [], "die_after": None}

    class Counted(Prior):
        chunk_size = 5

        def fit(self, train, calibration):
            calls["fit"] += 1
            return super().fit(train, calibration)

        def forecast(self, queries, *, progress=False):
            if calls["die_after"] is not None and len(calls["queries"]) >= calls["die_after"]:
                raise KeyboardInterrupt
            calls["queries"] += [q.comparison_id for q in queries]
            return super().forecast(queries)

    monkeypatch.setitem(kfs.forecast.FORECASTERS, "prior", Counted)
    return calls


def test_a_second_run_fits_nothing_and_gives_the_same(tmp_path, fold, counted):
    first = run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False)
    assert [f.comparison_id for f in first] == [p.comparison_id for p in fold.test]
    seen = len(counted["queries"])
    assert run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False) == first
    assert (counted["fit"], len(counted["queries"])) == (1, seen)


def test_a_run_killed_in_the_middle_computes_only_the_rest(tmp_path, fold, counted):
    counted["die_after"] = 12
    with pytest.raises(KeyboardInterrupt):
        run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False)
    (chunk, *_) = tmp_path.rglob("*.jsonl")
    (chunk.parent / f".{chunk.name}.half").write_text('{"query": "tr')
    done = list(counted["queries"])
    counted["die_after"] = None
    resumed = run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False)
    assert sorted(counted["queries"]) == sorted(p.comparison_id for p in fold.test)
    assert 0 < len(done) < len(fold.test)
    assert resumed == run_folds("prior", {}, [fold], cache_dir=tmp_path / "elsewhere", progress=False)


def test_other_options_or_other_training_pairs_are_another_cache(tmp_path, fold, counted):
    kfs_fold = type(fold)
    run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False)
    run_folds("prior", {"smoothing": 2.0}, [fold], cache_dir=tmp_path, progress=False)
    shorter = kfs_fold("made_up", fold.train[:-1], fold.calibration, fold.test)
    run_folds("prior", {}, [shorter], cache_dir=tmp_path, progress=False)
    assert counted["fit"] == 3
    assert len(list((tmp_path / "prior").iterdir())) == 3


def test_another_version_of_a_library_that_is_used_is_another_cache_and_of_others_is_not(tmp_path, fold, monkeypatch):
    versions = {"scikit-learn": "1.0", "scipy": "1.0"}
    monkeypatch.setattr("importlib.metadata.version", lambda name: versions.get(name, "0"))
    few = {"iterations": 2, "token_dimensions": 2}
    for change, folders in (({}, (1, 1)), ({"scikit-learn": "2.0"}, (1, 2)), ({"numba": "2.0"}, (1, 2))):
        versions.update(change)
        for name, options in (("prior", {}), ("boosted", few)):
            run_folds(name, options, [fold], cache_dir=tmp_path, progress=False)
        assert tuple(len(list((tmp_path / name).iterdir())) for name in ("prior", "boosted")) == folders


def test_forecasters_name_the_libraries_they_compute_with_as_packages_call_themselves():
    named = {name: library_versions(kind.libraries) for name, kind in kfs.forecast.FORECASTERS.items()}
    assert named["prior"] == named["variant_table"] == ""
    assert all("scikit-learn 1." in named[name] for name in ("boosted", "anchor_only", "candidate_only", "code_length"))
    assert named["local"].startswith("torch ") and ", transformers " in named["local"]


def test_no_forecaster_imports_the_room_that_measures():
    code = "import sys, kfs.forecast; print([m for m in sys.modules if m.startswith(('kfs.bench', 'kfs.pairs'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_several_folds_give_their_tests_one_after_the_other(tmp_path, fold, distributions):
    turned = type(fold)("turned", fold.calibration, fold.train, fold.test[:3])
    both = run_folds("boosted", {"iterations": 3}, [fold, turned], cache_dir=tmp_path, progress=False)
    assert [f.comparison_id for f in both] == [p.comparison_id for p in fold.test + fold.test[:3]]
    assert not np.allclose(distributions(both[:3]), distributions(both[-3:]))


def test_a_broken_chunk_is_named(tmp_path, fold):
    run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False)
    (chunk,) = tmp_path.rglob("*.jsonl")
    chunk.write_text(chunk.read_text()[:-40])
    with pytest.raises(SchemaError, match=rf"{chunk.name}, line \d+: not a cached forecast.*delete the file"):
        run_folds("prior", {}, [fold], cache_dir=tmp_path, progress=False)


def test_the_code_version_follows_what_a_module_imports_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "kfsx").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    a = "from kfsx.b import n\ndef f():\n    import kfsx.d\n    from kfsx import e\n"
    files = {"__init__": "", "a": a, "b": "n = 1\n", "c": "m = 1\n", "d": "n = 1\n", "e": "n = 1\n"}
    versions = []
    for change in ({}, {"c": "m = 2\n"}, {"b": "n = 2\n"}, {"d": "n = 2\n"}, {"e": "n = 2\n"}):
        for name, text in {**files, **change}.items():
            (tmp_path / "kfsx" / f"{name}.py").write_text(text)
        code_version.cache_clear()
        versions.append(code_version("kfsx.a"))
    code_version.cache_clear()
    assert versions[0] == versions[1]
    assert len(set(versions)) == 4


def test_of_two_processes_that_ask_for_the_same_one_works_and_the_other_waits(tmp_path):
    script = (
        "import pathlib, sys, time\nfrom kfs.forecast.cache import one_at_a_time\nfolder = pathlib.Path(sys.argv[1])\n"
        "with one_at_a_time(folder / 'locks' / 'x'):\n    (folder / 'held').touch()\n    sys.stdin.read()\n"
        "    (folder / 'done').touch()"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE)
    while not (tmp_path / "held").exists():
        time.sleep(0.02)
    threading.Timer(0.3, other.stdin.close).start()
    with one_at_a_time(tmp_path / "locks" / "x"):
        assert (tmp_path / "done").exists()
    other.wait()


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    script = (
        "import os, pathlib, sys\nfrom kfs.forecast.cache import one_at_a_time\n"
        "with one_at_a_time(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "x")], check=False).returncode == -9
    with one_at_a_time(tmp_path / "x"):
        pass
