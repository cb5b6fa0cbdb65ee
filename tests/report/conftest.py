"""A small project of its own - configuration, data and notebooks - for the study runner."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kfs.records import Forecast, Pair, content_id
from kfs.speedup import STUDY_BINS

REPOSITORY = Path(__file__).resolve().parents[2]
OPENING = "# What is asked?\n\nInputs: none. Minutes: 0. GPU: no.\n"
PARAMETERS = 'study = "embedded"\noverrides = ""\nout_dir = None'
START = "import kfs\n\nrun = kfs.start(study, overrides, out_dir)\nrun"
FINISH = "run.finish()"


def write_notebook(path: Path, *sources: str, parameters: str = PARAMETERS) -> Path:
    """A stripped notebook: an opening, the parameters, then ``sources`` as code cells."""
    code = lambda i, source, tags=(): {
        "cell_type": "code",
        "id": f"c{i}",
        "metadata": {"tags": list(tags)} if tags else {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }
    cells = [{"cell_type": "markdown", "id": "m0", "metadata": {}, "source": OPENING}, code(0, parameters, ["parameters"])]
    cells += [code(i, source) for i, source in enumerate(sources, start=1)]
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the real ``conf/``, one data file and two tiny notebooks; the working folder of the test."""
    root = tmp_path / "project"
    shutil.copytree(REPOSITORY / "conf", root / "conf")
    records = root / "records"
    records.mkdir()
    (records / "measurements.jsonl").write_text("{}\n")
    table = 'import pandas as pd\nrun.save_table("{name}", pd.DataFrame({{"seed": [run.config.seed]}}))'
    write_notebook(root / "notebooks" / "01_one.ipynb", START, table.format(name="one"), FINISH)
    write_notebook(root / "notebooks" / "02_two.ipynb", START, table.format(name="two"), FINISH)
    monkeypatch.chdir(root)
    return root


def make_pairs(rng, *, tasks=3, kernels=5) -> list[Pair]:
    """Every ordered pair of some invented kernels and their task's reference, with narrow intervals."""
    found = []
    for t in range(tasks):
        speed = {f"task{t}_kernel{i}": float(2 ** rng.normal(0, 1.3)) for i in range(kernels)} | {f"task{t}_reference": 1.0}
        for anchor, a in speed.items():
            for candidate, c in speed.items():
                if anchor == candidate:
                    continue
                low, high = c / a / 1.05, c / a * 1.05
                found.append(
                    Pair(
                        comparison_id=content_id(anchor, candidate),
                        pack=f"task{t}",
                        anchor_code=anchor,
                        candidate_code=candidate,
                        hardware="host",
                        aggregated_speedup=c / a,
                        true_bin=STUDY_BINS.index(c / a),
                        speedup_low=low,
                        speedup_high=high,
                        certain=STUDY_BINS.index(low) == STUDY_BINS.index(high),
                        anchor_id=anchor,
                        candidate_id=candidate,
                        anchor_variant="reference" if anchor.endswith("reference") else "torch",
                        candidate_variant="reference" if candidate.endswith("reference") else "torch",
                        subset="reference_to_candidate"
                        if anchor.endswith("reference")
                        else "candidate_to_reference"
                        if candidate.endswith("reference")
                        else "between_candidates",
                        group=f"task{t}",
                    )
                )
    return found


def make_forecasts(name: str, pairs: list[Pair], rng, *, noise: float = 1.0, failed: int = 0) -> list[Forecast]:
    """Forecasts centred on the truth plus noise in octaves; the first ``failed`` cannot be parsed."""
    found = []
    for i, pair in enumerate(pairs):
        if i < failed:
            fields = {"comparison_id": pair.comparison_id, "pack": pair.pack, "surrogate_label": name}
            found.append(Forecast(**fields, parse_failed=True, parse_error="not a distribution"))
            continue
        centre = np.log2(pair.aggregated_speedup) + rng.normal(0, noise)
        p = np.exp(-((np.log2(STUDY_BINS.representative) - centre) ** 2))
        found.append(Forecast.from_probabilities(pair.comparison_id, pair.pack, name, p))
    return found


@pytest.fixture(scope="session")
def kit():
    """The builders above, for tests to call: importlib mode gives test modules no conftest to import."""
    return SimpleNamespace(write_notebook=write_notebook, make_pairs=make_pairs, make_forecasts=make_forecasts)
