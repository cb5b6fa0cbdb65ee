import numpy as np

from kfs.report import compiled, tables
from kfs.report.tables import Intervals

INTERVALS = Intervals(n_resamples=50, level=0.95, seed=0)


def made_up(kit, rng, names):
    pairs = kit.make_pairs(rng)
    return pairs, tables.tidy(pairs, {name: kit.make_forecasts(name, pairs, rng) for name in names})


def test_the_gain_is_the_paired_difference_on_all_pairs_and_on_those_with_facts(kit, rng):
    pairs, frame = made_up(kit, rng, ("boosted", "boosted_facts", "prior"))
    some = {p.comparison_id for p in pairs[: len(pairs) // 2]}
    gain = compiled.gain(frame, some, INTERVALS)
    assert set(gain["pairs"]) == {"all", "with facts"} and set(gain["second"]) == {"boosted"}
    assert set(gain["metric"]) == {"accuracy", "within_one", "half_brier", "crps", "spearman"}
    alone = tables.paired(frame[frame["comparison_id"].isin(some)], "boosted_facts", INTERVALS, metrics=("crps",), only=("all",))
    expected = alone[alone["second"] == "boosted"].iloc[0]
    found = gain[(gain["pairs"] == "with facts") & (gain["subset"] == "all") & (gain["metric"] == "crps")].iloc[0]
    assert (found["estimate"], found["low"], found["high"], found["n"]) == tuple(expected[["estimate", "low", "high", "n"]])
    shown = compiled.headline(frame, some, INTERVALS)
    assert set(shown["forecaster"]) == {"boosted", "boosted_facts"}
    assert (shown.loc[shown["subset"] == "all", "n"] == len(some)).all()


def test_without_both_forecasters_or_without_facts_there_is_nothing_to_compare(kit, rng):
    pairs, frame = made_up(kit, rng, ("boosted", "prior"))
    everything = {p.comparison_id for p in pairs}
    assert compiled.gain(frame, everything, INTERVALS).empty and compiled.headline(frame, everything, INTERVALS).empty
    _, both = made_up(kit, rng, ("boosted", "boosted_facts"))
    assert set(compiled.gain(both, set(), INTERVALS)["pairs"]) == {"all"}


def test_host_kernels_have_no_compiler_facts(kit):
    assert compiled.with_facts(kit.make_pairs(np.random.default_rng(1))) == set()
