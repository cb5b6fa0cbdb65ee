"""WY transform of the gated delta rule: w and u from keys, values, gates and the inverted triangle of every chunk.

Inputs are those of a real layer (l2-normalised keys, beta in (0, 1), log gates in (-0.2, 0) summed within each chunk); A is
the true inverse of the chunk's unit lower triangle. The inversion itself is not part of the task.
"""

from kfs.tasks import Task, case, normal


def make_inputs(case, rng):
    import torch

    B, T, H, K, V, C = (case[name] for name in ("B", "T", "H", "K", "V", "C"))
    k = torch.nn.functional.normalize(normal(rng, B, T, H, K), dim=-1)
    v = normal(rng, B, T, H, V)
    beta = torch.from_numpy(rng.uniform(0.0, 1.0, (B, T, H)).astype("float32"))
    gates = torch.from_numpy(rng.uniform(-0.2, 0.0, (B, T // C, C, H)).astype("float32"))
    g = gates.cumsum(2).reshape(B, T, H)
    keys, decay, rate = (x.double().unflatten(1, (-1, C)).transpose(2, 3) for x in (k, g, beta))
    coupling = rate[..., None] * (keys @ keys.mT) * (decay[..., None] - decay[..., None, :]).exp()
    triangle = torch.eye(C, dtype=torch.float64) + coupling.tril(-1)
    inverse = torch.linalg.inv(triangle).tril().float()
    return k, v, beta, inverse.transpose(2, 3).reshape(B, T, H, C), g


def flops(case):
    tokens = case["B"] * case["T"] * case["H"]
    return tokens * ((case["C"] + 1.0) * (case["K"] + case["V"]) + case["K"] + case["V"] + 2.0)


def nbytes(case):
    return 4.0 * case["B"] * case["T"] * case["H"] * (2 * case["K"] + 2 * case["V"] + case["C"] + 2)


TASK = Task(
    name="gdn_recompute_w_u",
    title="Gated delta net, WY transform per chunk: w = A @ (k * beta * exp(g)), u = A @ (v * beta), A lower triangular.",
    signature=(
        "kernel(k: float32[B, T, H, K], v: float32[B, T, H, V], beta: float32[B, T, H], A: float32[B, T, H, C], "
        "g: float32[B, T, H]) -> (w: float32[B, T, H, K], u: float32[B, T, H, V]); chunks of C tokens, C divides T"
    ),
    make_inputs=make_inputs,
    cases={
        "tiny": (case(B=2, T=24, H=1, K=5, V=7, C=8), case(B=2, T=32, H=3, K=8, V=6, C=16)),
        "host": (
            case(B=2, T=256, H=2, K=32, V=32, C=16),
            case(B=2, T=256, H=2, K=32, V=64, C=32),
            case(B=2, T=256, H=3, K=64, V=64, C=64),
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
