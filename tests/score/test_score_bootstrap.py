import numpy as np
import pytest

from kfs.score import accuracy, aurc, bootstrap, ece, half_brier, kendall, mean, paired_difference, spearman
from kfs.score.bootstrap import Interval, _Design


@pytest.fixture
def pairs(rng):
    """Every ordered pair of the kernels of four tasks, with forecasts."""
    tasks, anchors, candidates = [], [], []
    for task, n_kernels in zip("abcd", (3, 4, 5, 6), strict=True):
        for i in range(n_kernels):
            for j in range(n_kernels):
                if i != j:
                    tasks.append(task), anchors.append(f"k{i}"), candidates.append(f"k{j}")
    n = len(tasks)
    return {
        "clusters": np.array(tasks),
        "kernels": (np.array(anchors), np.array(candidates)),
        "probabilities": rng.dirichlet(np.ones(8), n),
        "true_bin": rng.integers(1, 9, n),
        "speedup": rng.lognormal(0, 1, n),
    }


def naive_weights(clusters, kernels, rng):
    """One resample by the words of the study, in loops."""
    weight = np.zeros(len(clusters))
    names = sorted(set(clusters))
    for drawn in rng.choice(names, len(names)):
        inside = [i for i, c in enumerate(clusters) if c == drawn]
        ids = sorted({ids[i] for ids in kernels for i in inside})
        picked = list(rng.choice(ids, len(ids)))
        for i in inside:
            weight[i] += np.prod([picked.count(ids[i]) for ids in kernels])
    return weight


def test_weights_have_the_distribution_of_the_plain_procedure(pairs, rng):
    design = _Design(pairs["clusters"], pairs["kernels"])
    draws = rng.multinomial(4, [0.25] * 4, size=5000)
    ours = design._weights(draws, rng)[:, design.unit]
    naive = np.array([naive_weights(pairs["clusters"].tolist(), pairs["kernels"], rng) for _ in range(500)])
    first = pairs["clusters"] == "a"
    assert ours.mean() == pytest.approx(naive.mean(), rel=0.1)
    assert ours[:, first].sum(axis=1).std() == pytest.approx(naive[:, first].sum(axis=1).std(), rel=0.15)
    assert (ours[:, 0] == 0).mean() == pytest.approx((naive[:, 0] == 0).mean(), abs=0.08)
    # E[c_i c_j] of a multinomial over K kernels is 1 - 1 / K
    for task, n_kernels in zip("abcd", (3, 4, 5, 6), strict=True):
        assert ours[:, pairs["clusters"] == task].mean() == pytest.approx(1 - 1 / n_kernels, rel=0.06)


def test_a_pair_and_its_mirror_always_share_a_weight(pairs, rng):
    design = _Design(pairs["clusters"], pairs["kernels"])
    weights = design._weights(rng.multinomial(4, [0.25] * 4, size=50), rng)[:, design.unit]
    where = {key: i for i, key in enumerate(zip(pairs["clusters"], *pairs["kernels"], strict=True))}
    for (task, anchor, candidate), i in where.items():
        assert (weights[:, i] == weights[:, where[task, candidate, anchor]]).all()


def test_repeats_of_a_pair_share_a_weight_and_kernel_names_are_local_to_a_task(rng):
    clusters = np.array(["a", "a", "a", "b"])
    design = _Design(clusters, (np.array(["x", "x", "y", "x"]), np.array(["y", "y", "x", "y"])))
    assert design.unit[0] == design.unit[1]
    assert design.n_units == 3


@pytest.mark.parametrize("with_kernels", [False, True])
@pytest.mark.parametrize("metric", [accuracy, half_brier, spearman, kendall], ids=lambda m: m.__name__)
def test_ready_made_metrics_get_the_interval_of_the_plain_call(metric, with_kernels, pairs):
    truth = "speedup" if metric in (spearman, kendall) else "true_bin"
    failed = np.arange(len(pairs["clusters"])) % 9 == 0
    arrays = {"probabilities": pairs["probabilities"], truth: pairs[truth], "parse_failed": failed}
    kernels = pairs["kernels"] if with_kernels else None

    def plain(**named):
        return metric(**named)

    options = {"kernels": kernels, "n_resamples": 60}
    fast = bootstrap(metric, arrays, pairs["clusters"], rng=np.random.default_rng(1), **options)
    slow = bootstrap(plain, arrays, pairs["clusters"], rng=np.random.default_rng(1), **options)
    assert (fast.low, fast.high) == pytest.approx((slow.low, slow.high), rel=1e-9)
    assert fast.estimate == metric(**arrays)


@pytest.fixture
def calibrated(rng):
    """Rows whose probabilities mean what they say: their ECE is all chance, and resampling adds to it."""
    p = rng.dirichlet(np.ones(8), 60)
    truth = np.array([rng.choice(8, p=row) + 1 for row in p])
    return {"probabilities": p, "true_bin": truth}


def test_the_interval_of_ece_is_the_plain_one_moved_to_its_estimate(calibrated):
    clusters = np.arange(60) // 3
    options = {"n_resamples": 300, "rng": np.random.default_rng(1)}
    moved = bootstrap(ece, calibrated, clusters, **options)
    plain = bootstrap(lambda **a: ece(**a), calibrated, clusters, **options | {"rng": np.random.default_rng(1)})
    assert plain.low > moved.low > 0
    assert moved.high - moved.low == pytest.approx(plain.high - plain.low)
    assert moved.low < moved.estimate < moved.high
    assert moved.estimate == plain.estimate == ece(**calibrated)


@pytest.mark.parametrize("n_rows", [3, 8, 60])
def test_the_interval_of_ece_holds_its_estimate_and_nothing_below_zero(calibrated, n_rows):
    some = {name: values[:n_rows] for name, values in calibrated.items()}
    clusters = np.arange(n_rows)
    interval = bootstrap(ece, some, clusters, n_resamples=200, rng=np.random.default_rng(0))
    assert 0 <= interval.low <= interval.estimate <= interval.high


def test_a_paired_difference_of_ece_holds_its_estimate_and_may_be_negative(calibrated):
    clusters, uniform = np.arange(60), {**calibrated, "probabilities": np.full((60, 8), 1 / 8)}
    found = paired_difference(ece, uniform, calibrated, clusters, n_resamples=200, rng=np.random.default_rng(0))
    assert found.low < found.estimate < found.high
    assert found.low < 0


def test_the_interval_of_a_mean_over_many_tasks_has_the_width_of_theory(rng):
    values = np.repeat(rng.normal(size=400), 5)  # rows of a task are copies: only the tasks carry information
    interval = bootstrap(mean, (values,), np.repeat(np.arange(400), 5), n_resamples=4000, rng=rng)
    expected = 2 * 1.96 * values.std() / np.sqrt(400)
    assert interval.high - interval.low == pytest.approx(expected, rel=0.06)
    assert interval.estimate == pytest.approx(values.mean())


def test_a_paired_difference_of_a_shift_is_the_shift(pairs, rng):
    losses = rng.random(len(pairs["clusters"]))
    difference = paired_difference(mean, (losses + 0.25,), (losses,), pairs["clusters"], kernels=pairs["kernels"], rng=rng)
    assert (difference.low, difference.estimate, difference.high) == pytest.approx((0.25, 0.25, 0.25))
    assert difference.excludes(0)


def test_a_paired_difference_of_a_forecaster_with_itself_is_nothing(pairs, rng):
    arrays = (pairs["probabilities"], pairs["speedup"])
    difference = paired_difference(spearman, arrays, arrays, pairs["clusters"], kernels=pairs["kernels"], n_resamples=50, rng=rng)
    assert (difference.low, difference.estimate, difference.high) == (0.0, 0.0, 0.0)
    assert not difference.excludes(0)


def test_a_paired_difference_changes_sign_with_its_arguments(pairs):
    one, other = pairs["probabilities"], np.roll(pairs["probabilities"], 1, axis=0)
    options = {"clusters": pairs["clusters"], "kernels": pairs["kernels"], "n_resamples": 100}
    ahead = paired_difference(
        half_brier, (one, pairs["true_bin"]), (other, pairs["true_bin"]), rng=np.random.default_rng(3), **options
    )
    back = paired_difference(
        half_brier, (other, pairs["true_bin"]), (one, pairs["true_bin"]), rng=np.random.default_rng(3), **options
    )
    assert (ahead.low, ahead.estimate, ahead.high) == pytest.approx((-back.high, -back.estimate, -back.low))


def test_a_paired_difference_is_narrower_than_either_interval_when_tasks_differ(rng):
    hard = np.repeat(rng.random(30), 10)
    one, other = hard + 0.01 * rng.random(300), hard + 0.01 * rng.random(300) + 0.02
    clusters = np.repeat(np.arange(30), 10)
    difference = paired_difference(mean, (one,), (other,), clusters, rng=rng)
    alone = bootstrap(mean, (one,), clusters, rng=rng)
    assert difference.excludes(0)
    assert difference.high - difference.low < 0.1 * (alone.high - alone.low)


def test_equal_generators_give_equal_intervals(pairs):
    arrays = (pairs["probabilities"], pairs["true_bin"])
    runs = [
        bootstrap(half_brier, arrays, pairs["clusters"], kernels=pairs["kernels"], rng=np.random.default_rng(5)) for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_one_task_resamples_its_kernels(pairs, rng):
    here = pairs["clusters"] == "d"
    kernels = tuple(ids[here] for ids in pairs["kernels"])
    arrays = (pairs["probabilities"][here], pairs["true_bin"][here])
    interval = bootstrap(half_brier, arrays, pairs["clusters"][here], kernels=kernels, rng=rng)
    assert interval.low < interval.estimate < interval.high


def test_resamples_on_which_the_metric_does_not_exist_are_counted_apart(rng):
    kernels = (np.array(["x"]), np.array(["y"]))  # drawn (x, x) or (y, y) in half of the resamples: no pair is left
    interval = bootstrap(mean, ([0.5],), ["a"], kernels=kernels, n_resamples=400, rng=rng)
    assert (interval.low, interval.high) == (0.5, 0.5)
    assert interval.n_resamples + interval.n_undefined == 400
    assert 130 < interval.n_undefined < 270


def test_an_interval_that_does_not_exist_excludes_nothing(rng):
    constant = np.full((4, 8), 1 / 8)
    interval = bootstrap(spearman, (constant, [1.0, 2.0, 3.0, 4.0]), ["a", "a", "b", "b"], n_resamples=20, rng=rng)
    assert np.isnan([interval.estimate, interval.low, interval.high]).all()
    assert (interval.n_resamples, interval.n_undefined) == (0, 20)
    assert not interval.excludes(0)


def test_a_wider_level_gives_a_wider_interval(pairs):
    arrays = (pairs["true_bin"] / 8, pairs["speedup"])
    narrow, wide = (
        bootstrap(aurc, arrays, pairs["clusters"], kernels=pairs["kernels"], level=level, rng=np.random.default_rng(2))
        for level in (0.5, 0.99)
    )
    assert isinstance(wide, Interval)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clusters": ["a", "a", "a"]}, "one cluster and no kernels"),
        ({"clusters": ["a", "b"]}, "array of 3 rows, but clusters of 2"),
        ({"clusters": []}, "at least one row"),
        ({"kernels": (["x", "y"],)}, r"kernels must be a tuple of arrays of shape \(3,\)"),
        ({"n_resamples": 0}, "n_resamples must be 1 or more"),
        ({"level": 95}, "level must lie between 0 and 1"),
        ({"rng": 7}, "rng must be a numpy Generator, found int"),
    ],
)
def test_what_cannot_be_resampled_is_refused(change, message, rng):
    good = {"metric": mean, "arrays": ([1.0, 2.0, 3.0],), "clusters": ["a", "b", "c"], "rng": rng}
    with pytest.raises(ValueError, match=message):
        bootstrap(**(good | change))
