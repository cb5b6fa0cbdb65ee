import numpy as np
import pandas as pd
import pytest

from kfs.forecast.disguise import disguise
from kfs.records import Forecast, Measurement, Pair
from kfs.report import figures_asking, prompts, throughput
from kfs.report.config import compose
from kfs.report.schemas import PricesConfig
from kfs.report.tables import Intervals

INTERVALS = Intervals(50, 0.95, 0)


def pairs(n=12):
    speedups = 2.0 ** np.linspace(-2.2, 2.2, n)
    source = "def kernel(values):\n    return values + {i}\n"
    return [
        Pair(
            comparison_id=str(i),
            pack=f"task{i % 3}",
            anchor_code=source.format(i=0),
            candidate_code=source.format(i=i + 1),
            hardware="h100",
            aggregated_speedup=s,
            true_bin=int(np.searchsorted([0.25, 0.5, 2**-0.5, 1, 2**0.5, 2, 4], s, side="left")) + 1,
            anchor_id="a",
            candidate_id=str(i),
        )
        for i, s in enumerate(speedups)
    ]


def answers(rows, sharp, **fields):
    """Forecasts that put ``sharp`` more on the true bin."""
    made = []
    for p in rows:
        weights = np.ones(8)
        weights[p.true_bin - 1] += sharp
        made.append(Forecast.from_probabilities(p.comparison_id, p.pack, "local", weights, **fields))
    return made


def test_every_option_is_switched_alone_against_how_it_is_configured():
    found = prompts.variants("endpoint", {"cases": False, "examples": 5}, ["cases", "hardware", "examples", "form"])
    assert found == {
        "with cases": {"cases": True},
        "without hardware": {"hardware": False},
        "without examples": {"examples": 0},
        "readout": {"form": "readout"},
    }


def test_cost_and_gain_compares_with_the_first_prompt():
    rows = pairs()
    found = {
        prompts.BASE: answers(rows, 1.0, input_tokens=100, elapsed_s=1.0),
        "with cases": answers(rows, 6.0, input_tokens=150, elapsed_s=2.0, reasoning="candidate cut by 30 characters"),
        "with facts": answers(rows, 1.0, input_tokens=100, elapsed_s=1.0),
    }
    table = prompts.cost_and_gain(rows, found, INTERVALS).set_index("prompt")
    assert table.loc["with cases", "gain"] == pytest.approx(
        table.loc[prompts.BASE, "half_brier"] - table.loc["with cases", "half_brier"]
    )
    assert table.loc["with cases", "gain_low"] > 0
    assert list(table["moved"]) == [0.0, 1.0, 0.0] and list(table["share_cut"]) == [0.0, 1.0, 0.0]
    assert list(table["input_tokens"]) == [100, 150, 100] and list(table["seconds"]) == [1.0, 2.0, 1.0]
    figure = figures_asking.cost_and_gain(table.reset_index(), "local", INTERVALS.describe())
    assert "no forecast changed" in figure.get_label()


def test_movement_leaves_out_what_could_not_be_parsed_and_counts_it():
    rows = pairs()
    before, after = answers(rows, 1.0), answers(rows, 6.0)
    failed = {"comparison_id": rows[0].comparison_id, "pack": rows[0].pack, "surrogate_label": "local"}
    after[0] = Forecast(**failed, parse_failed=True, parse_error="no JSON")
    found = prompts.movement(rows, before, after, INTERVALS, forecaster="local")
    assert found["n"] == len(rows) and found["n_parse_failed"] == 1
    p, q = before[1].probabilities, after[1].probabilities
    assert found["moved"] == pytest.approx(0.5 * np.abs(p - q).sum()) and found["worse"] < 0
    still = prompts.movement(rows, before, before, INTERVALS)
    assert still["moved"] == still["other_bin"] == still["octaves"] == 0
    none = prompts.movement(rows[:1], before[:1], after[:1], INTERVALS, forecaster="local")
    assert set(none) == set(found) and none["n_parse_failed"] == 1 and none["n_compared"] == 0 and np.isnan(none["moved"])


def test_disguised_pairs_keep_identity_and_label():
    for p, q in zip(pairs(), prompts.disguised(pairs()), strict=True):
        assert q.candidate_code == disguise(p.candidate_code).source != p.candidate_code
        assert (q.comparison_id, q.true_bin, q.candidate_id) == (p.comparison_id, p.true_bin, p.candidate_id)


def measured(seconds):
    common = {"task": "t", "preset": "host", "kernel_id": "k", "reference_id": "r", "hardware": "host", "harness": "2"}
    return [Measurement(**common, status="crash", reason="x", seconds=s) for s in seconds]


def test_throughput_has_dollars_only_where_a_price_is_known():
    config = compose(overrides="forecaster=all")
    rows = pairs()
    asked = {"local": answers(rows, 1.0, input_tokens=1000, output_tokens=0, elapsed_s=0.5)}
    table = throughput.throughput(config, asked, {"prior": (0.001, 7)}, measured([9.0, 11.0])).set_index("what")
    assert table.loc["prior", "n"] == 7
    assert table.loc["local", "per_second"] == pytest.approx(2.0) and table.loc["local", "per_measurement"] == pytest.approx(20)
    assert table["usd_per_1000"].isna().all()
    config.prices = PricesConfig(measuring_usd_per_hour=3.6, forecasting_usd_per_hour=0.36)
    table = throughput.throughput(config, asked, {"prior": (0.001, 7)}, measured([9.0, 11.0])).set_index("what")
    assert table.loc["measuring", "usd_per_1000"] == pytest.approx(10.0)
    assert table.loc["local", "usd_per_1000"] == pytest.approx(0.05)


def test_an_endpoints_dollars_come_from_its_tokens():
    config = compose(
        overrides="forecaster=endpoint forecaster.endpoint.usd_per_million_input=2 forecaster.endpoint.usd_per_million_output=8"
    )
    asked = {"endpoint": answers(pairs(), 1.0, input_tokens=1000, output_tokens=100, elapsed_s=0.5)}
    table = throughput.throughput(config, asked, {}, [])
    assert table["usd_per_1000"].iloc[0] == pytest.approx(2.8) and np.isnan(table["per_measurement"].iloc[0])
    assert "2 USD for a million tokens in" in throughput.prices_said(config, asked)


def test_one_measured_of_k_considered_costs_a_measurement_and_k_forecasts():
    table = pd.DataFrame({"what": ["local", "measuring"], "seconds": [1.0, 10.0]})
    found = throughput.filtered_search(table).set_index("considered")["share"]
    assert found[1] == 1.0 and found[4] == pytest.approx(14 / 40) and found[16] == pytest.approx(26 / 160)
    assert throughput.filtered_search(table[:1]).empty
    assert "Nothing to show" in figures_asking.filtered_search(throughput.filtered_search(table[:1])).get_label()


def test_learners_are_timed_on_sources_they_have_not_seen():
    config = compose(overrides="forecaster=all")
    fold = type("Fold", (), {"train": pairs(), "calibration": [], "test": pairs()})()
    found = throughput.seconds_of_learners(config, [fold], ["prior", "code_length"])
    assert set(found) == {"prior", "code_length"} and all(s > 0 and n == 12 for s, n in found.values())
    twice = [list(throughput._never_seen(pairs())) for _ in range(2)]
    candidates = [sources["candidate_code"] for seen in twice for _, sources in seen]
    assert len(set(candidates)) == len(candidates) and all(
        c.strip() == p.candidate_code.strip() for (p, _), c in zip(twice[0], candidates[:12], strict=True)
    )
    assert len({sources["anchor_code"] for _, sources in twice[0]}) == 1


def test_forecasters_that_came_with_the_data_have_their_own_seconds_and_no_price_of_ours():
    config = compose(overrides="forecaster=prior prices.forecasting_usd_per_hour=1")
    assert throughput.answering(config, ["theirs", "prior"]) == ["theirs"]
    assert not prompts.is_language_model("theirs")
    table = throughput.throughput(config, {"theirs": answers(pairs(), 1.0, elapsed_s=2.0)}, {}, [])
    assert table["seconds"].iloc[0] == 2.0 and np.isnan(table["usd_per_1000"].iloc[0])
