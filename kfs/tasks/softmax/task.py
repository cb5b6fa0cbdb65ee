"""Softmax over the last dimension of a float32 matrix."""

from kfs.tasks import Task, case, heavy_tailed, normal


def make_inputs(case, rng):
    shape = (case["rows"], case["cols"])
    return (heavy_tailed(rng, *shape, df=4.0) if case.distribution == "heavy_tailed" else normal(rng, *shape),)


TASK = Task(
    name="softmax",
    title="Row-wise softmax of a float32 matrix.",
    signature="kernel(x: float32[rows, cols]) -> float32[rows, cols]",
    make_inputs=make_inputs,
    cases={
        "tiny": (case(rows=4, cols=33), case(rows=3, cols=64, distribution="heavy_tailed")),
        "host": (
            case(rows=256, cols=1024),
            case(rows=2048, cols=128, distribution="heavy_tailed"),
            case(rows=4096, cols=33),
        ),
        "paper": (
            case(rows=4096, cols=4096),
            case(rows=1024, cols=32768, distribution="heavy_tailed"),
            case(rows=65536, cols=256),
        ),
    },
    rtol=1e-4,
    atol=1e-7,
    precision="strict",
    flops=lambda case: 5.0 * case["rows"] * case["cols"],
    nbytes=lambda case: 8.0 * case["rows"] * case["cols"],
)
