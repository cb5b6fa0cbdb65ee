"""Cross entropy of bf16 logits: forward and backward in one call.

The outputs are the loss of every row and the gradient of their sum. The study's operator returns the mean loss and the
gradient of the mean at atol 1e-3; there every gradient element is below the tolerance, so zeros would pass, as would a
constant for the one loss. The sum leaves the gradient independent of the number of rows, and atol 1e-9 lies far below the
typical softmax value (about 1e-6 at the largest vocabulary), so that rtol, the study's own 1e-2, decides.
"""

from kfs.tasks import Task, case, normal


def make_inputs(case, rng):
    import torch

    logits = normal(rng, case["rows"], case["vocab"], scale=2.0).bfloat16()
    return logits, torch.from_numpy(rng.integers(0, case["vocab"], case["rows"]))


TASK = Task(
    name="cross_entropy",
    title="Fused forward and backward of cross entropy over a vocabulary, bf16 logits.",
    signature=(
        "kernel(logits: bfloat16[rows, vocab], targets: int64[rows]) -> (loss: float32[rows], grad: bfloat16[rows, vocab]); "
        "loss = logsumexp(logits) - logits[target] of every row, grad = softmax(logits) - onehot(target), "
        "the gradient of loss.sum(); computed in float32"
    ),
    make_inputs=make_inputs,
    cases={
        "tiny": (case(rows=3, vocab=37), case(rows=5, vocab=256)),
        "host": (case(rows=32, vocab=8192), case(rows=16, vocab=32000), case(rows=160, vocab=1000)),
        "paper": (case(rows=4096, vocab=32000), case(rows=4096, vocab=50264), case(rows=4096, vocab=128256)),
    },
    rtol=1e-2,
    atol=1e-9,
    precision="tolerance",
    flops=lambda case: 5.0 * case["rows"] * case["vocab"],
    nbytes=lambda case: 4.0 * case["rows"] * case["vocab"] + 12.0 * case["rows"],
)
