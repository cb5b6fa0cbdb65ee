"""Root-mean-square normalisation of the rows of a float32 matrix, times a weight for each column."""

from kfs.tasks import Task, case, heavy_tailed, normal


def make_inputs(case, rng):
    shape = (case["rows"], case["cols"])
    x = heavy_tailed(rng, *shape, df=4.0) if case.distribution == "heavy_tailed" else normal(rng, *shape)
    return x, 1.0 + normal(rng, case["cols"], scale=0.1)


TASK = Task(
    name="rmsnorm",
    title="RMS normalisation over the last dimension: x / sqrt(mean(x^2) + 1e-6) * weight.",
    signature="kernel(x: float32[rows, cols], weight: float32[cols]) -> float32[rows, cols]",
    make_inputs=make_inputs,
    cases={
        "tiny": (case(rows=5, cols=37), case(rows=3, cols=64, distribution="heavy_tailed")),
        "host": (
            case(rows=384, cols=1024),
            case(rows=192, cols=2048, distribution="heavy_tailed"),
            case(rows=1536, cols=257),
        ),
        "paper": (
            case(rows=4096, cols=4096),
            case(rows=8192, cols=8192, distribution="heavy_tailed"),
            case(rows=131072, cols=128),
        ),
    },
    rtol=1e-4,
    atol=1e-6,
    precision="strict",
    flops=lambda case: 4.0 * case["rows"] * case["cols"],
    nbytes=lambda case: 4.0 * (2 * case["rows"] * case["cols"] + case["cols"]),
)
