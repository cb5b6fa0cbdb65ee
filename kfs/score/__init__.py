"""Scores of forecasts: pure functions on arrays.

Probabilities have shape (n, 8) and true bins lie in 1 to 8; a reply that could not be parsed is marked in ``parse_failed``:
uniform in proper scores, wrong in accuracy, left out of ECE and rank measures. ``weight`` counts rows: a row of integer weight
w is w copies. Does not read records, draw figures or build tables.
"""

from kfs.score._rows import mean
from kfs.score.accuracy import (
    accuracy,
    accuracy_per_row,
    bin_error_per_row,
    mean_bin_error,
    parse_failures,
    predicted_bin,
    within_one,
    within_one_per_row,
)
from kfs.score.bootstrap import Interval, bootstrap, paired_difference
from kfs.score.calibration import Reliability, ece, reliability
from kfs.score.discovery import Discovery, average_precision, discovery, precision, recall
from kfs.score.proper import crps, crps_per_row, half_brier, half_brier_per_row, nll, nll_per_row
from kfs.score.rank import kendall, spearman
from kfs.score.recovery import Recovery, RecoveryCurve, expected_best, recovery, recovery_curve
from kfs.score.selective import (
    CONFIDENCES,
    RiskCoverage,
    aurc,
    max_probability,
    negative_entropy,
    risk_coverage,
    top_two_margin,
)

__all__ = [
    "CONFIDENCES",
    "Discovery",
    "Interval",
    "Recovery",
    "RecoveryCurve",
    "Reliability",
    "RiskCoverage",
    "accuracy",
    "accuracy_per_row",
    "aurc",
    "average_precision",
    "bin_error_per_row",
    "bootstrap",
    "crps",
    "crps_per_row",
    "discovery",
    "ece",
    "expected_best",
    "half_brier",
    "half_brier_per_row",
    "kendall",
    "max_probability",
    "mean",
    "mean_bin_error",
    "negative_entropy",
    "nll",
    "nll_per_row",
    "paired_difference",
    "parse_failures",
    "precision",
    "predicted_bin",
    "recall",
    "recovery",
    "recovery_curve",
    "reliability",
    "risk_coverage",
    "spearman",
    "top_two_margin",
    "within_one",
    "within_one_per_row",
]
