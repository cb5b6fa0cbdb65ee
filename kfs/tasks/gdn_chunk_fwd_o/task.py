"""Chunk output of the gated delta rule: what a query reads from the state before its chunk and from its own chunk.

Queries and keys are l2-normalised, gates lie in (-0.2, 0) and g is their sum within each chunk; states and values are drawn
at random. The state recurrence that would give h and v_new is another task.
"""

from kfs.tasks import Task, case, normal


def make_inputs(case, rng):
    import torch

    B, T, H, K, V, C = (case[name] for name in ("B", "T", "H", "K", "V", "C"))
    q, k = (torch.nn.functional.normalize(normal(rng, B, T, H, K), dim=-1) for _ in range(2))
    v_new = normal(rng, B, T, H, V)
    h = normal(rng, B, T // C, H, K, V)
    gates = torch.from_numpy(rng.uniform(-0.2, 0.0, (B, T // C, C, H)).astype("float32"))
    return q, k, v_new, h, gates.cumsum(2).reshape(B, T, H)


def flops(case):
    K, V, C = case["K"], case["V"], case["C"]
    return case["B"] * case["T"] * case["H"] * (2.0 * K * V + (C + 1.0) * (K + V) + (C + 1.0) + 2.0 * V)


def nbytes(case):
    K, V, C = case["K"], case["V"], case["C"]
    return 4.0 * case["B"] * case["T"] * case["H"] * (2 * K + 2 * V + K * V / C + 1)


TASK = Task(
    name="gdn_chunk_fwd_o",
    title=(
        "Gated delta net, chunk output: o = K**-0.5 * (exp(g) * (q @ h) + tril(q @ k.T * exp(g_i - g_j)) @ v_new) per chunk, "
        "diagonal included."
    ),
    signature=(
        "kernel(q: float32[B, T, H, K], k: float32[B, T, H, K], v_new: float32[B, T, H, V], h: float32[B, NT, H, K, V], "
        "g: float32[B, T, H]) -> float32[B, T, H, V]; NT chunks of C = T / NT tokens"
    ),
    make_inputs=make_inputs,
    cases={
        "tiny": (case(B=2, T=24, H=1, K=5, V=7, C=8), case(B=2, T=32, H=3, K=8, V=6, C=16)),
        "host": (
            case(B=2, T=256, H=2, K=32, V=32, C=16),
            case(B=2, T=256, H=2, K=32, V=64, C=32),
            case(B=2, T=256, H=2, K=64, V=64, C=64),
        ),
        "paper": (
            case(B=1, T=64, H=1, K=64, V=64, C=64),
            case(B=2, T=512, H=3, K=64, V=64, C=64),
            case(B=2, T=1024, H=3, K=64, V=64, C=64),
        ),
    },
    rtol=1e-3,
    atol=1e-3,
    precision="strict",
    flops=flops,
    nbytes=nbytes,
)
