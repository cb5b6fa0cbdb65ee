import numpy as np
import pytest

from kfs.errors import UnknownNameError
from kfs.forecast import FORECASTERS, make
from kfs.forecast.query import Query
from kfs.speedup import STUDY_BINS

LEARNERS = sorted(name for name, kind in FORECASTERS.items() if kind.learns)
FEW = {"iterations": 8}


def small(name):
    return make(name, **({k: v for k, v in FEW.items() if k in FORECASTERS[name].__dataclass_fields__}))


@pytest.fixture(scope="module")
def fold(made_up_fold):
    return made_up_fold(np.random.default_rng(0))


@pytest.fixture(scope="module")
def fitted(fold):
    return {name: small(name).fit(fold.train, fold.calibration) for name in LEARNERS}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_forecaster_returns_one_valid_forecast_a_query_in_order(name, fitted, fold, distributions):
    queries = [Query.from_pair(p) for p in fold.test]
    forecasts = fitted[name].forecast(queries)
    assert [f.comparison_id for f in forecasts] == [p.comparison_id for p in fold.test]
    assert {f.surrogate_label for f in forecasts} == {name}
    assert np.allclose(distributions(forecasts).sum(axis=1), 1)
    assert distributions(fitted[name].forecast(queries[::-1])) == pytest.approx(distributions(forecasts)[::-1])


@pytest.mark.parametrize("name", LEARNERS)
def test_only_the_variant_table_looks_at_variants_and_none_at_packs(name, fold, distributions):
    def relabelled(pairs, rng):
        packs, labels = rng.permutation([p.pack for p in pairs]), rng.permutation([p.anchor_variant for p in pairs])
        return [
            p.model_copy(update={"pack": str(k), "anchor_variant": str(v), "candidate_variant": str(v)})
            for p, k, v in zip(pairs, packs, labels, strict=True)
        ]

    rng = np.random.default_rng(1)
    plain = small(name).fit(fold.train, fold.calibration).forecast([Query.from_pair(p) for p in fold.test])
    swapped = small(name).fit(relabelled(fold.train, rng), relabelled(fold.calibration, rng))
    other = swapped.forecast([Query.from_pair(p) for p in relabelled(fold.test, rng)])
    same = np.array_equal(distributions(plain), distributions(other))
    assert same == (name != "variant_table")


@pytest.mark.parametrize("name", ["boosted", "candidate_only", "code_length"])
def test_comments_and_docstrings_do_not_change_a_forecast(name, fitted, fold, distributions):
    queries = [Query.from_pair(p) for p in fold.test[:6]]
    code = [
        q.candidate_code.replace("def kernel(x):\n", 'def kernel(x):  # fused CUDA graph\n    """__shared__ float4"""\n')
        for q in queries
    ]
    loud = [Query(**{**vars(q), "candidate_code": c}) for q, c in zip(queries, code, strict=True)]
    assert distributions(fitted[name].forecast(loud)) == pytest.approx(distributions(fitted[name].forecast(queries)))


def test_boosted_mirrors_its_forecast_when_anchor_and_candidate_are_swapped(fitted, fold, distributions):
    queries = [Query.from_pair(p) for p in fold.test]
    swapped = [Query(**{**vars(q), "anchor_code": q.candidate_code, "candidate_code": q.anchor_code}) for q in queries]
    straight = distributions(fitted["boosted"].forecast(queries))
    assert distributions(fitted["boosted"].forecast(swapped)) == pytest.approx(straight[:, ::-1])


def test_boosted_learns_the_same_from_pairs_in_one_order_as_from_both(fold):
    swap = {"anchor_code": "candidate_code", "candidate_code": "anchor_code"}
    mirrored = [
        p.model_copy(update={new: getattr(p, old) for new, old in swap.items()} | {"true_bin": 9 - p.true_bin})
        for p in fold.train
    ]
    codes = {(p.anchor_code, p.candidate_code, p.hardware) for p in fold.train}
    new = [m for m in mirrored if (m.anchor_code, m.candidate_code, m.hardware) not in codes]
    queries = [Query.from_pair(p) for p in fold.test]
    one, both = (small("boosted").fit(train, []).forecast(queries) for train in (fold.train, fold.train + new))
    assert [f.bin_probabilities for f in one] == [f.bin_probabilities for f in both]


def test_boosted_reads_code_where_the_rivals_cannot(fold, fitted, distributions):
    truth = np.log2([p.aggregated_speedup for p in fold.test])
    queries = [Query.from_pair(p) for p in fold.test]
    error = {
        name: np.abs(STUDY_BINS.expected_log2_speedup(distributions(f.forecast(queries))) - truth).mean()
        for name, f in fitted.items()
    }
    assert all(error["boosted"] < error[name] for name in ("prior", "variant_table", "anchor_only", "candidate_only"))


@pytest.mark.parametrize("name", LEARNERS)
def test_training_pairs_of_one_bin_and_an_unseen_processor_still_give_forecasts(name, rng, made_up_pairs):
    train = [p.model_copy(update={"aggregated_speedup": 1.2, "true_bin": 5}) for p in made_up_pairs(rng, 40)]
    (query,) = (Query(**{**vars(Query.from_pair(p)), "hardware": "new"}) for p in made_up_pairs(rng, 1))
    (forecast,) = small(name).fit(train, []).forecast([query])
    assert forecast.predicted_bin in ((4, 5) if name == "boosted" else (5,))  # boosted learns both orders
    assert forecast.probabilities.min() > 0


@pytest.mark.parametrize("name", LEARNERS)
def test_no_training_pairs_is_an_error_and_no_query_no_forecast(name, fitted):
    with pytest.raises(ValueError, match="no training pairs"):
        small(name).fit([], [])
    assert fitted[name].forecast([]) == []


def test_prior_counts_bins_with_smoothing(rng, made_up_pairs):
    pairs = [p.model_copy(update={"true_bin": b}) for p, b in zip(made_up_pairs(rng, 4), (5, 5, 5, 8), strict=True)]
    (forecast,) = make("prior", smoothing=0.5).fit(pairs, []).forecast([Query.from_pair(pairs[0])])
    assert forecast.probabilities == pytest.approx(np.array([0.5, 0.5, 0.5, 0.5, 3.5, 0.5, 0.5, 1.5]) / 8)


def test_variant_table_draws_cells_towards_the_prior_and_falls_back_on_it(rng, made_up_pairs, distributions):
    known = [
        p.model_copy(update={"true_bin": 5, "anchor_variant": "a", "candidate_variant": v})
        for p, v in zip(made_up_pairs(rng, 8), "bbbbcccc", strict=True)
    ]
    table = make("variant_table", smoothing=4.0).fit(known, [])
    queries = [Query(**{**vars(Query.from_pair(known[0])), "candidate_variant": v}) for v in ("b", "zzz")]
    seen, unseen = distributions(table.forecast(queries))
    prior = np.array([1, 1, 1, 1, 9, 1, 1, 1]) / 16
    assert unseen == pytest.approx(prior)
    assert seen == pytest.approx((4 * prior + 4 * np.eye(8)[4]) / 8)


def test_unknown_forecasters_and_options_are_refused_with_what_exists():
    with pytest.raises(UnknownNameError, match=r"unknown forecaster 'bosted' \(did you mean 'boosted'\?\).*variant_table"):
        make("bosted")
    with pytest.raises(UnknownNameError, match=r"unknown option of forecaster 'boosted' 'depth'.*iterations"):
        make("boosted", depth=3)


def test_a_query_takes_title_and_signature_from_the_task_and_never_the_answer(rng, made_up_pairs):
    (pair,) = made_up_pairs(rng, 1)
    assert Query.from_pair(pair).title == ""
    query = Query.from_pair(pair.model_copy(update={"pack": "softmax"}))
    assert "softmax" in query.title.lower() and "kernel(" in query.signature
    assert not {"aggregated_speedup", "true_bin", "speedup_low", "speedup_high"} & set(vars(query))
