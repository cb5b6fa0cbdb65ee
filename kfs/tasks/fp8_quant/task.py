"""Per-group absmax scaling to the range of FP8 E4M3, the last step before a cast that this task leaves out.

``q`` is clamped but not rounded. Some groups of the heavy-tailed cases are all zero, so that the floor of the scale matters.
"""

from kfs.tasks import Task, case, heavy_tailed, normal

GROUP = 128


def make_inputs(case, rng):
    tokens, hidden = case["tokens"], case["hidden"]
    if case.distribution == "normal":
        return (normal(rng, tokens, hidden),)
    x = heavy_tailed(rng, tokens, hidden)
    empty = rng.random((tokens, hidden // GROUP)) < 0.05
    empty[0, 0] = False
    x.view(tokens, hidden // GROUP, GROUP).numpy()[empty] = 0.0
    return (x,)


TASK = Task(
    name="fp8_quant",
    title="Per-group absmax scaling of a float32 matrix to the FP8 range [-448, 448], groups of 128 along the last dimension.",
    signature=(
        "kernel(x: float32[tokens, hidden]) -> (q: float32[tokens, hidden], scale: float32[tokens, hidden / 128]); "
        "scale = max(absmax of the group, 1e-10) / 448, q = clamp(x / scale, -448, 448), not rounded"
    ),
    make_inputs=make_inputs,
    cases={
        "tiny": (case(tokens=3, hidden=256), case(tokens=5, hidden=384, distribution="heavy_tailed")),
        "host": (
            case(tokens=128, hidden=4096),
            case(tokens=48, hidden=7168, distribution="heavy_tailed"),
            case(tokens=640, hidden=512),
        ),
        "paper": (case(tokens=256, hidden=4096), case(tokens=256, hidden=8192), case(tokens=4096, hidden=7168)),
    },
    rtol=1e-3,
    atol=1e-3,
    precision="strict",
    flops=lambda case: 3.0 * case["tokens"] * case["hidden"],
    nbytes=lambda case: (8.0 + 4.0 / GROUP) * case["tokens"] * case["hidden"],
)
