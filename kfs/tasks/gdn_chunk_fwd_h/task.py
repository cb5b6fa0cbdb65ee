"""State recurrence of the gated delta rule from chunk to chunk: the state before every chunk and the corrected values.

Inputs are those of a real layer: l2-normalised keys, beta in (0, 1), log gates in (-0.2, 0) summed within each chunk, and
the w and u that the WY transform makes of them. That transform is not part of the task. The state starts at zero.
"""

from kfs.tasks import Task, case, normal

CHUNK = 64


def make_inputs(case, rng):
    import torch

    B, T, H, K, V = (case[name] for name in ("B", "T", "H", "K", "V"))
    k = torch.nn.functional.normalize(normal(rng, B, T, H, K), dim=-1)
    v = normal(rng, B, T, H, V)
    beta = torch.from_numpy(rng.uniform(0.0, 1.0, (B, T, H)).astype("float32"))
    gates = torch.from_numpy(rng.uniform(-0.2, 0.0, (B, T // CHUNK, CHUNK, H)).astype("float32"))
    g = gates.cumsum(2).reshape(B, T, H)
    keys, values, rate, decay = (x.double().unflatten(1, (-1, CHUNK)).transpose(2, 3) for x in (k, v, beta, g))
    coupling = rate[..., None] * (keys @ keys.mT) * (decay[..., None] - decay[..., None, :]).exp()
    triangle = torch.eye(CHUNK, dtype=torch.float64) + coupling.tril(-1)
    right = torch.cat((keys * decay.exp()[..., None], values), dim=-1) * rate[..., None]
    solved = torch.linalg.solve_triangular(triangle, right, upper=False, unitriangular=True)
    solved = solved.float().transpose(2, 3).reshape(B, T, H, K + V)
    return k, solved[..., :K].contiguous(), solved[..., K:].contiguous(), g


def flops(case):
    K, V = case["K"], case["V"]
    chunks = case["B"] * case["H"] * (case["T"] // CHUNK)
    first = case["B"] * case["H"]
    return chunks * (4.0 * CHUNK * K * V + 2.0 * CHUNK * V + 2.0 * K * V) - first * (4.0 * CHUNK * K * V)


def nbytes(case):
    K, V = case["K"], case["V"]
    return 4.0 * case["B"] * case["T"] * case["H"] * (2 * K + 2 * V + 1 + K * V / CHUNK)


TASK = Task(
    name="gdn_chunk_fwd_h",
    title=(
        "Gated delta net, state recurrence over chunks of 64 tokens: store h = S, v_new = u - w @ S, "
        "then S = exp(g_last) * S + k.T @ (v_new * exp(g_last - g)); S starts at zero."
    ),
    signature=(
        "kernel(k: float32[B, T, H, K], w: float32[B, T, H, K], u: float32[B, T, H, V], g: float32[B, T, H]) -> "
        "(h: float32[B, T / 64, H, K, V], v_new: float32[B, T, H, V]); 64 divides T, g is summed within each chunk"
    ),
    make_inputs=make_inputs,
    cases={
        "tiny": (case(B=2, T=128, H=1, K=5, V=7), case(B=2, T=192, H=2, K=8, V=6)),
        "host": (
            case(B=2, T=512, H=1, K=16, V=32),
            case(B=2, T=512, H=1, K=32, V=32),
            case(B=2, T=256, H=2, K=64, V=64),
        ),
        "paper": (
            case(B=1, T=64, H=1, K=64, V=64),
            case(B=2, T=512, H=3, K=64, V=64),
            case(B=2, T=1024, H=3, K=64, V=64),
        ),
    },
    rtol=1e-3,
    atol=1e-3,
    precision="strict",
    flops=flops,
    nbytes=nbytes,
)
