"""Invented files in the form of the study's released sets, for tests. Nothing in them was measured or forecast by anyone.

Every source, reason and name says so: they begin with ``SYNTHETIC``.
"""

import json
from pathlib import Path

import numpy as np

from kfs.speedup import RELEASED_LABELS, STUDY_BINS

SYNTHETIC = "synthetic, made by the tests of kfs"
PACKS = ("trimul", "cross_entropy", "gdn_chunk_fwd_h", "gdn_chunk_fwd_o", "gdn_recompute_w_u", "fp8_quant")
LABELS = tuple(f"synthetic-{i}" for i in range(1, 8))


def code(pack: str, number: int) -> str:
    return f"# {SYNTHETIC}\ndef custom_kernel(data):\n    return {pack}_{number}(data)\n"


def eval_rows(rng, per_pack: int = 8) -> list[dict]:
    """Pairs that share kernels: each pack has a handful."""
    rows = []
    for pack in PACKS:
        for i in range(per_pack):
            speedup = float(2 ** rng.normal(0, 1.2))
            anchor, candidate = i % 3, 3 + i % 5
            rows.append(
                {
                    "comparison_id": f"{pack}-{i}",
                    "pack": pack,
                    "anchor_code": code(pack, anchor),
                    "candidate_code": code(pack, candidate) + f"# {i}\n",
                    "hardware": "NVIDIA H100 (synthetic)",
                    "aggregated_speedup": speedup,
                    "true_bin": RELEASED_LABELS.index(speedup),
                    "source_id": f"synthetic/{pack}/{i}",
                    "source_search": "synthetic",
                    "internal_experiment": None,
                }
            )
    return rows


def prediction_rows(pairs: list[dict], rng, repeats: int = 3, failed: int = 2) -> list[dict]:
    """Noisy forecasts in the study's bins, probabilities as a model may state them; each forecaster fails ``failed`` times."""
    rows = []
    for skill, label in enumerate(LABELS):
        for n, pair in enumerate(pairs):
            for repeat in range(repeats):
                centre = np.log2(pair["aggregated_speedup"]) + rng.normal(0, 0.3 + 0.3 * skill)
                p = np.exp(-((np.log2(STUDY_BINS.representative) - centre) ** 2))
                p = np.round(p / p.sum() * rng.uniform(0.9, 1.05), 2)
                missing = repeat == 0 and n < failed
                rows.append(
                    {
                        "comparison_id": pair["comparison_id"],
                        "pack": pair["pack"],
                        "surrogate_label": label,
                        "repeat": repeat,
                        "predicted_bin": None if missing else int(p.argmax()) + 1,
                        "bin_probabilities": [] if missing else [{"bin": b, "p": float(v)} for b, v in enumerate(p, start=1)],
                        "reasoning": None if missing else SYNTHETIC,
                        "raw_probability_sum": None if missing else float(p.sum()),
                        "parse_failed": missing,
                        "parse_error": f"no JSON ({SYNTHETIC})" if missing else None,
                        "input_tokens": 1000 + n,
                        "output_tokens": None if missing else 200,
                        "elapsed_s": 1.5,
                    }
                )
    return rows


def pool_rows(rng, n: int = 12) -> list[dict]:
    rows = []
    for i in range(n):
        speedup = float(2 ** rng.normal(0, 1.2))
        row = {"row_id": i, "pack": PACKS[i % 3], "anchor_code": code("pool", i), "candidate_code": code("pool", i + 1)}
        row |= {"aggregated_speedup": speedup, "relative_bin": RELEASED_LABELS.index(speedup), "pair_type": "synthetic"}
        rows.append({**row, "hardware": "NVIDIA H100 (synthetic)", "source_id": f"synthetic/pool/{i}"})
    return rows


def discovery_rows(rng, n: int = 20) -> list[dict]:
    rows = []
    for i in range(n):
        speedup = float(2 ** rng.normal(0, 0.5))
        row = {"pair_id": f"pair-{i}", "problem_id": f"problem-{i % 4}", "benchmark_family": f"synthetic-{i % 2}"}
        row |= {"parent_code": code("search", i), "child_code": code("search", i + 1), "g_speedup": speedup}
        row |= {"true_bin": RELEASED_LABELS.index(speedup), "hardware": "NVIDIA H100 (synthetic)"}
        rows.append({**row, "parent_node_id": i, "child_node_id": i + 1, "source_id": f"synthetic/search/{i}"})
    return rows


def write(path: Path, rows: list[dict]) -> Path:
    """Rows as a .parquet or .jsonl file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_all(folder: Path, rng, suffix: str = "parquet", *, per_pack: int = 8) -> Path:
    """The four sets as clones of them lie in a folder, with the configurations by pack or forecaster that repeat the rows."""
    pairs = eval_rows(rng, per_pack)
    answers = prediction_rows(pairs, rng)
    layout = {
        "gpu-forecasters-eval-set": ("eval", pairs, "pack"),
        "gpu-forecasters-eval-set-predictions": ("predictions", answers, "surrogate_label"),
    }
    for name, (split, rows, by) in layout.items():
        configs = {"combined": rows}
        for row in rows:
            configs.setdefault(row[by], []).append(row)
        card = ["---", "configs:"]
        for config, members in configs.items():
            write(folder / name / config / f"{split}-00000-of-00001.{suffix}", members)
            card += [f"- config_name: {config}", "  data_files:", f"  - split: {split}", f"    path: {config}/{split}-*"]
        (folder / name / "README.md").write_text("\n".join([*card, "---", f"# {SYNTHETIC}", ""]))
    write(folder / "gpu-forecasters-rl-training-pool" / "data" / f"train-00000-of-00001.{suffix}", pool_rows(rng))
    write(folder / "gpu-forecasters-discovery-pairs" / "data" / f"pairs-00000-of-00001.{suffix}", discovery_rows(rng))
    return folder
