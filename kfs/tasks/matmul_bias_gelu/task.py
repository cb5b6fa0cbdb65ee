"""Matrix product, bias and exact (erf) GELU in float32: the first half of a transformer's feed-forward block."""

import math

from kfs.tasks import Task, case, heavy_tailed, normal


def make_inputs(case, rng):
    m, k, n = case["m"], case["k"], case["n"]
    draw = heavy_tailed if case.distribution == "heavy_tailed" else normal
    return (draw(rng, m, k), normal(rng, k, n, scale=1 / math.sqrt(k)), normal(rng, n, scale=0.5))


TASK = Task(
    name="matmul_bias_gelu",
    title="GELU(x @ w + bias) with the exact, erf-based GELU, float32.",
    signature="kernel(x: float32[m, k], w: float32[k, n], bias: float32[n]) -> float32[m, n]",
    make_inputs=make_inputs,
    cases={
        "tiny": (case(m=5, k=7, n=33), case(m=16, k=3, n=20, distribution="heavy_tailed")),
        "host": (
            case(m=512, k=4, n=256),
            case(m=256, k=16, n=512, distribution="heavy_tailed"),
            case(m=96, k=64, n=512),
        ),
        "paper": (
            case(m=4096, k=1024, n=4096),
            case(m=65536, k=32, n=1024, distribution="heavy_tailed"),
            case(m=16, k=4096, n=16384),
        ),
    },
    rtol=1e-4,
    atol=1e-4,
    precision="strict",
    flops=lambda case: 2.0 * case["m"] * case["k"] * case["n"] + 10.0 * case["m"] * case["n"],
    nbytes=lambda case: 4.0 * (case["m"] * case["k"] + case["k"] * case["n"] + case["n"] + case["m"] * case["n"]),
)
