from pathlib import Path

import numpy as np
import pytest

import kfs.forecast
from kfs.bench.facts import FEATURES
from kfs.data import cuda_l1
from kfs.forecast import compiled, make, run_folds
from kfs.forecast.query import Query

EXCERPTS = Path(__file__).parents[2] / "data" / "excerpts" / "cuda_l1"
FEW = {"iterations": 8, "token_dimensions": 4, "smallest_leaf": 2}
N = len(FEATURES)


@pytest.fixture(scope="module")
def released():
    """Pairs of two problems of CUDA-L1 whose custom kernels are CUDA C++, and of one whose are not."""
    pairs = cuda_l1.load_pairs(paths=[EXCERPTS / "a100.json"], suspect="include")
    return [p for p in pairs if p.pack in ("level1_problem19", "level1_problem23", "level1_problem4")]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))
    compiled._row.cache_clear()
    yield tmp_path / "cache"
    compiled._row.cache_clear()


def test_facts_are_finite_in_a_fixed_order_and_zero_where_there_are_none(released, cache):
    pytest.importorskip("cuda.core")
    sides = compiled.fact_features(released)
    assert sides.shape == (2, len(released), N) and np.isfinite(sides).all()
    known = np.array([["__global__" in code for code in (p.anchor_code, p.candidate_code)] for p in released]).T
    compiles, registers = FEATURES.index("compiles"), FEATURES.index("registers")
    assert known.any() and not known.all()
    assert (sides[..., compiles] == known).all() and (sides[..., registers] > 0).tolist() == known.tolist()
    assert not sides[~known].any()
    assert [compiled.has_facts(p) for p in released] == [tuple(pair) for pair in known.T]


def test_a_swap_mirrors_the_facts_and_the_forecast(released, cache, distributions):
    pytest.importorskip("cuda.core")
    forecaster = make("boosted_facts", **FEW).fit(released, [])
    queries = [Query.from_pair(p) for p in released]
    swapped = [Query(**{**vars(q), "anchor_code": q.candidate_code, "candidate_code": q.anchor_code}) for q in queries]
    assert np.array_equal(forecaster._features(queries, swapped=True), forecaster._features(swapped))
    anchor, candidate, difference = np.split(forecaster._features(queries)[:, -3 * N :], 3, axis=1)
    assert anchor.any() and candidate.any() and np.allclose(difference, candidate - anchor)
    straight = distributions(forecaster.forecast(queries))
    assert distributions(forecaster.forecast(swapped)) == pytest.approx(straight[:, ::-1])


def test_facts_are_compiled_once_and_a_killed_run_goes_on(released, cache, monkeypatch):
    pytest.importorskip("cuda.core")
    from kfs.bench import compile as compiling

    calls, run_nvrtc = [], compiling.run_nvrtc

    def killed_at_the_second(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run_nvrtc(*args, **options)

    monkeypatch.setattr(compiling, "run_nvrtc", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        compiled.fact_features(released)
    first = compiled.fact_features(released)
    sources = {code for p in released for code in (p.anchor_code, p.candidate_code) if "__global__" in code}
    assert len(calls) == len(sources) + 1  # the one that was killed is compiled again, no other
    compiled._row.cache_clear()
    assert np.array_equal(compiled.fact_features(released), first) and len(calls) == len(sources) + 1


def test_kernels_without_facts_are_forecast_as_boosted_does(made_up_fold, distributions):
    fold = made_up_fold(np.random.default_rng(3))
    queries = [Query.from_pair(p) for p in fold.test]
    both = [make(n, iterations=8).fit(fold.train, fold.calibration).forecast(queries) for n in ("boosted", "boosted_facts")]
    assert np.array_equal(*map(distributions, both))
    assert {f.surrogate_label for f in both[1]} == {"boosted_facts"}


def test_hardware_that_nobody_describes_has_no_facts(released):
    strange = [p.model_copy(update={"hardware": "b999"}) for p in released]
    assert not compiled.fact_features(strange).any()


def test_a_change_of_what_compiles_makes_its_forecasts_anew_and_no_others(made_up_fold, tmp_path, monkeypatch):
    fold = made_up_fold(np.random.default_rng(4), n=40)
    code_version = kfs.forecast.code_version
    for change in ("", "changed"):
        monkeypatch.setattr(kfs.forecast, "code_version", lambda m, c=change: code_version(m) + c * (m == "kfs.bench.compile"))
        for name in ("boosted", "boosted_facts"):
            run_folds(name, {"iterations": 2}, [fold], cache_dir=tmp_path, progress=False)
    assert [len(list((tmp_path / name).iterdir())) for name in ("boosted", "boosted_facts")] == [1, 2]
