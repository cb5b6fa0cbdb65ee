import numpy as np
import pytest
from matplotlib.figure import Figure

from kfs.report import figures, measured, style, tables

INTERVALS = tables.Intervals(n_resamples=20, level=0.95, seed=0)


def draw_all(pairs, frame):
    kind = INTERVALS.describe()
    headline = tables.headline(frame, INTERVALS, {"all": frame["speedup"] > 0})
    curves = tables.recovery(frame)
    return {
        "bins": figures.bins(measured.bin_counts(pairs)),
        "speedups": figures.speedups(measured.pair_frame(pairs), "pack", "All pairs"),
        "label_noise": figures.label_noise(measured.label_noise(pairs, "pack"), "pack"),
        "headline": figures.headline(headline, kind),
        "paired": figures.paired(tables.paired(frame, "boosted", INTERVALS, only=("all",)), kind),
        "by_group": figures.by_group(tables.headline_by(frame, "pack", INTERVALS), "half_brier", kind, what="task"),
        "reliability": figures.reliability(tables.reliability(frame), tables.calibration(frame, INTERVALS)),
        "risk_coverage": figures.risk_coverage(tables.risk_coverage(frame), 90),
        "aurc": figures.aurc(tables.selective(frame, INTERVALS), kind),
        "recovery": figures.recovery(curves, "a task"),
        "recovery_by_pool": figures.recovery_by_pool(tables.recovery_by_pool(frame, 0.1), "boosted", 0.1),
        "confusion": figures.confusion(tables.confusion(frame, "boosted")),
    }


@pytest.fixture(scope="module")
def drawn(kit):
    rng = np.random.default_rng(0)
    pairs = kit.make_pairs(rng, kernels=4)
    frame = tables.tidy(pairs, {name: kit.make_forecasts(name, pairs, rng) for name in ("prior", "boosted")})
    return pairs, frame, draw_all(pairs, frame)


def test_every_figure_has_a_caption_and_says_n_or_pools(drawn):
    for name, figure in drawn[2].items():
        assert isinstance(figure, Figure)
        assert figure.get_figwidth() == style.WIDTH, name
        caption = figure.get_label()
        assert "n = " in caption or "pools" in caption or name == "bins", name
        assert "interval" in caption or name == "risk_coverage", name


def test_unchanged_data_gives_unchanged_bytes(drawn):
    pairs, frame, first = drawn
    measured_again = figures.bins(measured.bin_counts(pairs)), figures.confusion(tables.confusion(frame, "boosted"))
    for name, again in zip(("bins", "confusion"), measured_again, strict=True):
        assert style.render(first[name]) == style.render(again)


def test_rendering_twice_gives_the_same_bytes_without_a_date(drawn):
    figure = drawn[2]["headline"]
    one = style.render(figure)
    assert one == style.render(figure)
    assert b"CreationDate" not in one["pdf"]


def test_each_forecaster_keeps_one_colour_of_its_own():
    names = ("prior", "variant_table", "anchor_only", "candidate_only", "code_length", "boosted", "boosted_facts", "local")
    assert len({style.colour(n) for n in names}) == len(names)
    assert style.colour("somebody else's") == style.colour("somebody else's")


def test_paired_with_nothing_to_compare_says_so(drawn):
    frame = drawn[1]
    alone = tables.paired(frame[frame["forecaster"] == "boosted"], "boosted", INTERVALS)
    assert figures.paired(alone, INTERVALS.describe()).get_label().startswith("Nothing to show")


def test_every_figure_of_an_empty_table_says_that_there_is_nothing_to_show(drawn):
    frame = drawn[1].iloc[:0]
    for name, figure in draw_all([], frame).items():
        assert figure.get_label().startswith("Nothing to show"), name
        assert set(style.render(figure)) == {"png", "pdf"}
    no_such = figures.headline(tables.headline(drawn[1], INTERVALS), INTERVALS.describe(), subset="none")
    assert no_such.get_label() == "Nothing to show: no pair of subset none."


def test_a_forecaster_of_which_every_label_is_uncertain_draws_nothing_but_says_so(drawn):
    frame = drawn[1].assign(certain=False)
    assert figures.confusion(tables.confusion(frame, "boosted")).get_label().startswith("Nothing to show")
    assert figures.reliability(tables.reliability(frame), tables.calibration(frame, INTERVALS)).get_label().startswith("Nothing")
    headline = figures.headline(tables.headline(frame, INTERVALS), INTERVALS.describe())
    assert "exact bin counts the 0 whose" in headline.get_label()
