"""Inclusive cumulative sum over the last dimension of a float32 matrix."""

from kfs.tasks import Task, case, normal


def make_inputs(case, rng):
    x = normal(rng, case["rows"], case["cols"])
    return (x.abs_() if case.distribution == "positive" else x,)


TASK = Task(
    name="cumsum",
    title="Row-wise inclusive cumulative sum of a float32 matrix.",
    signature="kernel(x: float32[rows, cols]) -> float32[rows, cols]",
    make_inputs=make_inputs,
    cases={
        "tiny": (case(rows=6, cols=17), case(rows=3, cols=67, distribution="positive")),
        "host": (
            case(rows=4096, cols=80),
            case(rows=512, cols=768, distribution="positive"),
            case(rows=128, cols=4096, distribution="positive"),
        ),
        "paper": (
            case(rows=4096, cols=4096, distribution="positive"),
            case(rows=128, cols=32768, distribution="positive"),
            case(rows=262144, cols=64),
        ),
    },
    rtol=1e-5,
    atol=1e-5,
    precision="strict",
    flops=lambda case: float(case["rows"] * (case["cols"] - 1)),
    nbytes=lambda case: 8.0 * case["rows"] * case["cols"],
)
