"""Outgoing triangle multiplicative update of AlphaFold's pair representation, float32.

Every pair (i, j) gathers the products of its two outgoing edges (i, k) and (j, k). Weights follow the convention of
``torch.nn.Linear`` (output features first); ``mask`` is 1 for a pair that exists and 0 for padding.
"""

import math

from kfs.tasks import Task, case, heavy_tailed, normal


def make_inputs(case, rng):
    import torch

    b, s, dim, hidden = case["b"], case["s"], case["dim"], case["hidden"]
    draw = heavy_tailed if case.distribution == "heavy_tailed" else normal
    x = draw(rng, b, s, s, dim)
    mask = torch.from_numpy(rng.random((b, s, s)) < 0.7).float() if case.distribution == "masked" else torch.ones(b, s, s)
    projections = (normal(rng, hidden, dim, scale=1 / math.sqrt(dim)) for _ in range(5))
    return (
        x,
        mask,
        1 + normal(rng, dim, scale=0.2),
        normal(rng, dim, scale=0.2),
        *projections,
        1 + normal(rng, hidden, scale=0.2),
        normal(rng, hidden, scale=0.2),
        normal(rng, dim, hidden, scale=1 / math.sqrt(hidden)),
    )


def flops(case):
    b, s, dim, hidden = case["b"], case["s"], case["dim"], case["hidden"]
    return 2.0 * b * s * s * hidden * (6 * dim + s)


def nbytes(case):
    b, s, dim, hidden = case["b"], case["s"], case["dim"], case["hidden"]
    return 4.0 * (b * s * s * (2 * dim + 1) + 6 * dim * hidden + 2 * dim + 2 * hidden)


TASK = Task(
    name="trimul",
    title="Outgoing triangle multiplicative update (AlphaFold): LayerNorm, gated projections, product over k, LayerNorm, output.",
    signature=(
        "kernel(x: float32[b, s, s, dim], mask: float32[b, s, s], norm_scale: float32[dim], norm_bias: float32[dim], "
        "left_proj: float32[hidden, dim], right_proj: float32[hidden, dim], left_gate: float32[hidden, dim], "
        "right_gate: float32[hidden, dim], out_gate: float32[hidden, dim], out_norm_scale: float32[hidden], "
        "out_norm_bias: float32[hidden], to_out: float32[dim, hidden]) -> float32[b, s, s, dim]"
    ),
    make_inputs=make_inputs,
    cases={
        "tiny": (case(s=5, b=2, dim=8, hidden=12, distribution="masked"), case(s=6, b=2, dim=12, hidden=8)),
        "host": (
            case(s=16, b=2, dim=32, hidden=32),
            case(s=20, b=2, dim=64, hidden=32, distribution="heavy_tailed"),
            case(s=32, b=2, dim=16, hidden=16, distribution="masked"),
        ),
        "paper": (
            case(s=256, b=2, dim=128, hidden=128),
            case(s=768, b=1, dim=128, hidden=128, distribution="heavy_tailed"),
            case(s=256, b=2, dim=384, hidden=128, distribution="masked"),
            case(s=512, b=1, dim=128, hidden=128),
            case(s=1024, b=1, dim=128, hidden=128, distribution="heavy_tailed"),
            case(s=768, b=1, dim=384, hidden=128, distribution="masked"),
            case(s=1024, b=1, dim=384, hidden=128),
        ),
    },
    rtol=2e-2,
    atol=2e-2,
    precision="tolerance",
    flops=flops,
    nbytes=nbytes,
)
