import numpy as np
import pytest

from kfs.score import CONFIDENCES, aurc, bin_error_per_row, max_probability, negative_entropy, risk_coverage, top_two_margin


def naive_curve(losses, confidence):
    """Coverage and risk by a loop over thresholds and rows."""
    curve = []
    for threshold in sorted(set(confidence), reverse=True):
        accepted = [loss for loss, sure in zip(losses, confidence, strict=True) if sure >= threshold]
        curve.append((len(accepted) / len(losses), sum(accepted) / len(accepted), threshold))
    return np.array(curve).T


def test_aurc_ignores_row_order_when_confidence_ties(rng):
    losses, confidence = rng.random(50), np.repeat([0.2, 0.8], 25)
    order = rng.permutation(50)
    assert aurc(losses, confidence) == pytest.approx(aurc(losses[order], confidence[order]))


def test_aurc_of_four_rows_by_hand():
    # risks at the tie blocks: 0 for one row, 1 for two, 1 for the last
    assert aurc([0.0, 1.0, 2.0, 1.0], [0.9, 0.5, 0.5, 0.1]) == (0 + 1 + 1 + 1) / 4


def test_constant_confidence_has_the_mean_loss():
    assert aurc([0.0, 3.0, 0.0], [0.5, 0.5, 0.5]) == pytest.approx(1.0)


@pytest.mark.parametrize("decimals", [1, 2, 9])
def test_agrees_with_a_loop_over_thresholds(decimals, rng):
    losses, confidence = rng.random(200), rng.normal(size=200).round(decimals)
    coverage, risk, threshold = naive_curve(losses.tolist(), confidence.tolist())
    curve = risk_coverage(losses, confidence)
    assert curve.coverage == pytest.approx(coverage)
    assert curve.risk == pytest.approx(risk)
    assert curve.threshold == pytest.approx(threshold)
    assert aurc(losses, confidence) == pytest.approx(np.diff(coverage, prepend=0) @ risk)


def test_risk_of_wrong_answers_is_one_minus_scikit_learns_precision(rng):
    from sklearn.metrics import precision_recall_curve

    wrong, confidence = rng.integers(0, 2, 100), rng.random(100).round(1)
    precision, _, thresholds = precision_recall_curve(1 - wrong, confidence)
    curve = risk_coverage(wrong, confidence)
    assert curve.threshold == pytest.approx(thresholds[::-1])
    assert curve.risk == pytest.approx(1 - precision[:-1][::-1])


def test_weighted_curve_is_the_curve_of_copies(rng):
    losses, confidence, weight = rng.random(30), rng.random(30).round(1), rng.integers(0, 3, 30)
    curve = risk_coverage(losses, confidence, weight=weight)
    copies = risk_coverage(np.repeat(losses, weight), np.repeat(confidence, weight))
    for ours, theirs in zip(curve, copies, strict=True):
        assert ours == pytest.approx(theirs)


def test_no_confidence_beats_the_losses_themselves(rng):
    losses = rng.random(30)
    least = aurc(losses, -losses)
    assert all(aurc(losses, rng.random(30)) >= least for _ in range(50))


def test_the_curve_ends_at_full_coverage_and_the_mean_loss(rng):
    losses = rng.random(30)
    curve = risk_coverage(losses, rng.random(30))
    assert curve.coverage[-1] == 1.0
    assert curve.risk[-1] == pytest.approx(losses.mean())


@pytest.mark.parametrize(
    ("losses", "confidence", "message"),
    [
        ([0.0, 1.0], [0.5], "confidence has 1 rows, the others have 2"),
        ([], [], "no rows"),
        ([0.0, np.nan], [0.5, 0.5], "losses, row 1: found nan"),
        ([0.0, 1.0], [np.inf, 0.5], "confidence, row 0: found inf"),
        ([0.0, -1.0], [0.5, 0.5], "losses, row 1: found -1"),
    ],
)
def test_bad_losses_and_confidences_are_refused(losses, confidence, message):
    with pytest.raises(ValueError, match=message):
        aurc(losses, confidence)
    with pytest.raises(ValueError, match=message):
        risk_coverage(losses, confidence)


def test_confidences_of_one_row_by_hand():
    p = [[0, 0, 0, 0.5, 0.25, 0.25, 0, 0]]
    assert max_probability(p).tolist() == [0.5]
    assert top_two_margin(p).tolist() == [0.25]
    assert negative_entropy(p) == pytest.approx([1 - 1.5 / 3])


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
def test_confidence_is_least_for_the_uniform_forecast_and_one_for_a_certain_one(confidence, rng):
    uniform, certain = confidence(np.full((1, 8), 1 / 8))[0], confidence(np.eye(8))
    assert certain == pytest.approx(1.0)
    assert (confidence(rng.dirichlet(np.ones(8), 100)) > uniform).all()


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
def test_equal_forecasts_tie_whatever_rounding_did(confidence):
    stated = np.array([0.1 + 0.2, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05, 0.0])
    rows = np.array([stated * factor / (stated * factor).sum() for factor in (1.0, 0.9, 0.75, 1.1, 3.0)])
    assert len(set(confidence(rows))) == 1


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
def test_parse_failures_enter_last_with_the_loss_they_are_charged(confidence, rows):
    failed = rows["parse_failed"]
    losses = bin_error_per_row(rows["probabilities"], rows["true_bin"], parse_failed=failed)
    sure = confidence(rows["probabilities"], parse_failed=failed)
    assert sure[failed].max() < 0 <= sure[~failed].min()
    curve = risk_coverage(losses, sure)
    assert curve.coverage[-2] == pytest.approx(37 / 40)
    assert curve.risk[-2] == pytest.approx(losses[~failed].mean())
