"""Rewards of a forecast, from the bin it states, the distribution it states, and what was measured.

A reward is a weighted sum of parts, each in [0, 1], higher is better: ``exact`` (the stated bin is the true one), ``brier``
(1 - half Brier), ``crps`` (1 - CRPS), ``log`` (1 - NLL / 27.6, the log score scaled), ``ranked`` (how often the forecast orders
this candidate and another of the same reference as measured). What cannot be parsed has reward 0, the least there is.

Whether a reward is proper depends on who states the bin. Where it stands beside a distribution, ``exact`` rewards only the bin,
so ``exact`` + a proper score has its optimum at the true distribution with its likeliest bin. Where one distribution plays both
parts (a readout whose action is the bin), the expected ``exact`` is p.q; alone it drives p to a corner, and with half Brier the
optimum is sharper than the truth: q = (.75, .25) gives p = (1, 0). Proper training of a readout uses a score alone.

Functions take arrays of numpy or of torch; with torch they are differentiable in the probabilities.

Source: arXiv 2605.31464 (exact; + 1 - Brier; + 1 - CRPS); Gneiting and Raftery, "Strictly proper scoring rules" (2007).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kfs.errors import SchemaError, unknown_name
from kfs.score.proper import NLL_FLOOR
from kfs.speedup import N_BINS, STUDY_BINS

LEAST_LOG = float(-np.log(NLL_FLOOR))
"""NLL of a bin that was ruled out, nats: where the log part is 0."""
_SOFTNESS = 0.5
_MIDPOINTS = np.log2(STUDY_BINS.representative)


def exact_part(probabilities, truth, bin_weights):
    """Share of the stated bin that is the true one, shape (n,): 1 or 0 where a bin is stated, p.q where it is drawn."""
    return (bin_weights * truth).sum(-1)


def brier_part(probabilities, truth, bin_weights):
    """1 - half the squared distance to the truth's one-hot vector, shape (n,)."""
    return 1 - 0.5 * ((probabilities - truth) ** 2).sum(-1)


def crps_part(probabilities, truth, bin_weights):
    """1 - mean squared distance of the cumulative distributions at the seven inner edges, shape (n,)."""
    apart = (probabilities - truth).cumsum(-1)[..., :-1]
    return 1 - (apart**2).sum(-1) / (N_BINS - 1)


def log_part(probabilities, truth, bin_weights):
    """1 - NLL / 27.6 with probabilities of at least 1e-12, shape (n,)."""
    p = (probabilities * truth).sum(-1)
    logs = np.log(np.maximum(p, NLL_FLOOR)) if isinstance(p, np.ndarray) else p.clamp_min(NLL_FLOOR).log()
    return 1 + logs / LEAST_LOG


PARTS = {"exact": exact_part, "brier": brier_part, "crps": crps_part, "log": log_part}
"""Parts that look at one forecast; ``ranked`` looks at all of a reference."""
REWARDS: dict[str, dict[str, float]] = {
    "exact": {"exact": 1.0},
    "exact_brier": {"exact": 1.0, "brier": 1.0},
    "exact_crps": {"exact": 1.0, "crps": 1.0},
    "brier": {"brier": 1.0},
    "crps": {"crps": 1.0},
    "log": {"log": 1.0},
    "ranked": {"ranked": 1.0},
}
"""Weights of the rewards that have names; the first three are the study's."""


def weights_of(reward: str | Mapping[str, float]) -> dict[str, float]:
    """Weights of a reward given by name or as weights themselves; parts of weight 0 are left out.

    Raises
    ------
    UnknownNameError
        If there is no such reward or part.
    SchemaError
        If a weight is negative or not finite, or none is above 0.

    Examples
    --------
    >>> weights_of("exact_brier")
    {'exact': 1.0, 'brier': 1.0}
    >>> weights_of({"exact": 0.5, "crps": 2})
    {'exact': 0.5, 'crps': 2.0}
    """
    if isinstance(reward, str):
        if reward not in REWARDS:
            raise unknown_name("reward", reward, REWARDS, "kfs/rl/reward.py")
        return dict(REWARDS[reward])
    for part, weight in reward.items():
        if part not in (*PARTS, "ranked"):
            raise unknown_name("part of a reward", part, (*PARTS, "ranked"), "kfs/rl/reward.py")
        if not np.isfinite(weight) or weight < 0:
            raise SchemaError(f"reward part {part!r}: weight {weight}, expected a finite number of at least 0")
    kept = {part: float(weight) for part, weight in reward.items() if weight}
    if not kept:
        raise SchemaError("a reward needs a part with a weight above 0")
    return kept


def reward(which: str | Mapping[str, float], probabilities, true_bin, *, stated_bin=None, speedup=None, group=None, failed=None):
    """Reward of each forecast.

    Parameters
    ----------
    which : str or mapping
        A key of ``REWARDS``, or weights of parts.
    probabilities : array or tensor of shape (n, 8)
        Stated distributions; rows that failed may hold anything finite.
    true_bin : array-like of int, shape (n,)
        1 to 8.
    stated_bin : array-like of int, shape (n,), optional
        Bin stated beside the distribution. Without it the bin is drawn from the distribution, and ``exact`` is its expectation.
    speedup : array-like of shape (n,), optional
        Measured; for ``ranked``.
    group : sequence of length n, optional
        What names the reference of each row; for ``ranked``. By default all rows have one.
    failed : array-like of bool, shape (n,), optional
        Rows whose reply could not be parsed.

    Returns
    -------
    array or tensor of shape (n,)
        From 0 to the sum of the weights.

    Raises
    ------
    ValueError
        If shapes differ, a bin lies outside 1 to 8, or ``ranked`` is asked for without speedups.

    Examples
    --------
    >>> sure = np.eye(8)[[3, 3]]
    >>> reward("exact_brier", sure, [4, 5], stated_bin=[4, 4]).tolist()
    [2.0, 0.0]
    """
    weights = weights_of(which)
    bins = np.asarray(true_bin, dtype=int)
    if probabilities.shape != (len(bins), N_BINS) or (len(bins) and (bins.min() < 1 or bins.max() > N_BINS)):
        raise ValueError(
            f"need bins from 1 to {N_BINS} and distributions of shape ({len(bins)}, {N_BINS}), found {tuple(probabilities.shape)}"
        )
    truth = _like(np.eye(N_BINS)[bins - 1], probabilities)
    drawn = probabilities if stated_bin is None else _like(np.eye(N_BINS)[np.asarray(stated_bin, dtype=int) - 1], probabilities)
    total = 0.0
    for part, weight in weights.items():
        if part == "ranked":
            total = total + weight * ranked_part(probabilities, speedup, group)
        else:
            total = total + weight * PARTS[part](probabilities, truth, drawn)
    return total if failed is None else total * _like(~np.asarray(failed, dtype=bool), probabilities)


def ranked_part(probabilities, speedup, group=None):
    """How often a forecast orders its candidate and the others of the same reference as they were measured, shape (n,).

    The order is that of expected log2 speedup, softly (a logistic of scale 0.5), so that it has a gradient. A tie in the
    measured speedups has no order and is left out; 0.5 where a row has nobody to be compared with.
    """
    if speedup is None:
        raise ValueError("the ranked part needs the measured speedup of every row")
    logs = np.log2(np.asarray(speedup, dtype=float))
    names = np.zeros(len(logs)) if group is None else np.unique(np.asarray(group, dtype=str), return_inverse=True)[1]
    order = np.sign(logs[:, None] - logs[None, :]) * (names[:, None] == names[None, :])
    expected = (probabilities * _like(_MIDPOINTS, probabilities)).sum(-1)
    apart = (expected[:, None] - expected[None, :]) * _like(order, probabilities) / _SOFTNESS
    right = 1 / (1 + np.exp(-apart)) if isinstance(apart, np.ndarray) else apart.sigmoid()
    compared = _like(order != 0, probabilities)
    n = compared.sum(-1)
    lone = _like((order == 0).all(axis=-1), probabilities)
    return ((right * compared).sum(-1) + 0.5 * lone) / (n + lone)


def _like(values: np.ndarray, array):
    """Values as an array of the same kind, number format and device as ``array``."""
    if isinstance(array, np.ndarray):
        return np.asarray(values, dtype=float)
    import torch

    return torch.as_tensor(np.asarray(values, dtype=float), dtype=array.dtype, device=array.device)
