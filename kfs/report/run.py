"""A notebook's handle on its study: the configuration, pairs, forecasts, and where tables and figures go.

``run = kfs.start(study, overrides, out_dir)`` in a notebook, under the runner or in JupyterLab alike. Heavy libraries are
imported when they are asked for. Statistics belong to ``tables``, drawing to ``figures``.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kfs.errors import unknown_name
from kfs.records import (
    Forecast,
    Hardware,
    Kernel,
    Measurement,
    Pair,
    Record,
    atomic_write,
    read_records,
    write_records,
)
from kfs.report import sources
from kfs.report.config import as_list, compose, project_root
from kfs.report.schemas import EmbeddedData, StudyConfig

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Image
    from matplotlib.figure import Figure

    from kfs.pairs import Fold
    from kfs.report.tables import Intervals


class Run:
    """One study, as a notebook sees it.

    Parameters
    ----------
    config : StudyConfig
        Composed configuration.
    run_dir : Path
        The study's run folder; its pairs are shared by all notebooks.
    notebook : str
        Name the outputs are filed under by the runner. Empty in JupyterLab, where tables, figures and records go to ``lab/``
        in the run's folder, so that they replace nothing a finished study shows.
    """

    def __init__(self, config: StudyConfig, run_dir: Path, notebook: str = "") -> None:
        self.config = config
        self.run_dir = run_dir
        self.out_dir = run_dir if notebook else run_dir / "lab"
        self._notebook = notebook
        self._tables: dict[str, str] = {}
        self._figures: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._forecasts: dict[str, list[Forecast]] = {}
        self._calibrations: dict[str, list[Forecast]] = {}
        self._pairs: list[Pair] | None = None
        self._folds: list[Fold] | None = None

    def _repr_markdown_(self) -> str:
        c = self.config
        return (
            f"Study **{c.study}**, seed {c.seed}; forecasters {', '.join(self.forecasters)}; {c.bootstrap.level:.0%} intervals "
            f"from {c.bootstrap.n_resamples} bootstrap resamples of tasks and kernels. Run folder `{self.run_dir.name}`."
        )

    @property
    def forecasters(self) -> list[str]:
        """Names of the forecasters that take part: those the data brings with it, then ours."""
        return [*self._released, *self.config.forecasters]

    @property
    def everywhere(self) -> list[str]:
        """Forecasters that forecast every test pair; where only slow ones take part, those, on the sample."""
        return [name for name in self.forecasters if name not in self.config.sample.forecasters] or self.forecasters

    @property
    def lead(self) -> str:
        """The forecaster that notebooks look at closely: boosted, else the last of those that forecast every pair."""
        return "boosted" if "boosted" in self.everywhere else self.everywhere[-1]

    @property
    def sample_lead(self) -> str:
        """The forecaster that is compared with the others on the sample: a slow one where one takes part, else :attr:`lead`."""
        return next((name for name in self.forecasters if name in self.config.sample.forecasters), self.lead)

    @property
    def group(self) -> str:
        """Column that results are shown by: ``pack`` where tasks are few, else ``hardware``."""
        return "hardware" if self.config.data.source == "cuda_l1" else "pack"

    @property
    def group_name(self) -> str:
        """What a value of :attr:`group` is: task or GPU."""
        return "task" if self.group == "pack" else "GPU"

    @property
    def by_group_name(self) -> str:
        """Name of the headline table by task or GPU."""
        return "headline_by_task" if self.group == "pack" else "headline_by_gpu"

    @property
    def intervals(self) -> Intervals:
        """How intervals are made."""
        from kfs.report.tables import Intervals

        return Intervals(self.config.bootstrap.n_resamples, self.config.bootstrap.level, self.config.seed)

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for one named purpose: the same for the same seed, whatever else was drawn before."""
        return np.random.default_rng([self.config.seed, zlib.crc32(purpose.encode())])

    @cached_property
    def _embedded(self) -> tuple[list[Measurement], list[Kernel], Hardware]:
        return sources.embedded_records(self.config)

    @cached_property
    def _released(self) -> dict[str, list[Forecast]]:
        return sources.released_forecasts(self.config)

    def measurements(self) -> list[Measurement]:
        """Measurements behind the pairs; empty for a study whose data holds ratios only."""
        return self._embedded[0] if isinstance(self.config.data, EmbeddedData) else []

    def kernels(self) -> list[Kernel]:
        """Kernels that were measured; empty for a study whose data holds ratios only."""
        return self._embedded[1] if isinstance(self.config.data, EmbeddedData) else []

    def pairs(self) -> list[Pair]:
        """Every pair the study looks at, train to test; kept in ``records/pairs.parquet`` for the next notebook."""
        if self._pairs is None:
            key = sources.pairs_key(self.config)
            file, stamp = self.run_dir / "records" / "pairs.parquet", self.run_dir / "records" / "pairs.key"
            if file.is_file() and stamp.is_file() and stamp.read_text() == key:
                self._pairs = read_records(Pair, file)
            else:
                self._pairs = sources.load_pairs(self.config, self.rng("balance"), lambda: self._embedded)
                stamp.unlink(missing_ok=True)
                write_records(self._pairs, file)
                atomic_write(stamp, key.encode())
        return self._pairs

    def suspect_pairs(self) -> list[Pair]:
        """Pairs the data source itself distrusts, which are no part of :meth:`pairs`."""
        return sources.suspect_pairs(self.config)

    def discovery_pairs(self) -> list[Pair]:
        """Parent and child pairs of searches that come with the data, which are no part of :meth:`pairs`."""
        return sources.discovery_pairs(self.config)

    def left_out(self) -> dict[str, int]:
        """What the data holds and no pair shows, counted by why; see :func:`kfs.data.cuda_l1.left_out`."""
        return sources.left_out(self.config)

    def folds(self) -> list[Fold]:
        """Train, calibration and test pairs of every fold."""
        if self._folds is None:
            self._folds = sources.folds(self.config, self.pairs())
        return self._folds

    def test_pairs(self) -> list[Pair]:
        """Test pairs of all folds, in order."""
        return [p for fold in self.folds() for p in fold.test]

    def sample(self) -> set[str]:
        """comparison_ids of the fixed stratified sample that slow forecasters run on."""
        from kfs.pairs import stratified_sample

        return {p.comparison_id for p in stratified_sample(self.test_pairs(), self.config.sample.size, self.rng("sample"))}

    def calibration_pairs(self) -> list[Pair]:
        """Calibration pairs of the fixed split; none where one task is left out at a time, since there the other tasks serve."""
        return self.folds()[0].calibration if len(self.folds()) == 1 else []

    def forecasts(self, name: str) -> list[Forecast]:
        """Forecasts of one forecaster for the test pairs (slow ones: for the sample), in the order of the folds.

        Forecasters that come with the data answer a pair several times; each answer is a forecast.

        Cached by content and resumable: a notebook that is run again, or killed, repeats nothing.

        Raises
        ------
        UnknownNameError
            If the forecaster takes no part in this study.
        """
        self._forecast(name)
        return self._forecasts[name]

    def calibration_forecasts(self, name: str) -> list[Forecast]:
        """Forecasts of one forecaster for :meth:`calibration_pairs` (slow ones: for a sample of them half as large)."""
        self._forecast(name)
        return self._calibrations[name]

    def _forecast(self, name: str) -> None:
        """Forecast what is judged and what is calibrated on, with one fit a fold."""
        from dataclasses import replace

        from kfs.data.manifest import cache_folder
        from kfs.forecast import run_folds
        from kfs.pairs import stratified_sample

        if name not in self.forecasters:
            raise unknown_name("forecaster of this run", name, self.forecasters, "choose others with forecaster=...")
        if name in self._forecasts:
            return
        if name in self._released:
            place = {p.comparison_id: i for i, p in enumerate(self.test_pairs())}
            mine = [f for f in self._released[name] if f.comparison_id in place]
            self._forecasts[name] = sorted(mine, key=lambda f: (place[f.comparison_id], f.repeat))
            self._calibrations[name] = []
            return
        folds, calibration = self.folds(), self.calibration_pairs()
        if name in self.config.sample.forecasters:
            ids = self.sample()
            calibration = stratified_sample(calibration, self.config.sample.size // 2, self.rng("calibration sample"))
            folds = [replace(f, test=[p for p in f.test if p.comparison_id in ids]) for f in folds]
            folds = [replace(f, calibration=calibration) if calibration else f for f in folds if f.test]
        options, where = self.config.forecaster[name], cache_folder() / "forecasts"
        found = run_folds(name, options, folds, cache_dir=where, asked=("test", "calibration") if calibration else ("test",))
        n = len(found) - len(calibration)
        self._forecasts[name], self._calibrations[name] = found[:n], found[n:]

    def ask(self, name: str, pairs: Sequence[Pair], **changed) -> list[Forecast]:
        """Forecasts of one forecaster with some of its options changed, cached like :meth:`forecasts`.

        Parameters
        ----------
        name : str
        pairs : sequence of Pair
            Test pairs, or pairs made from them that keep their comparison_id; each is asked of its own fold's forecaster.
        **changed
            Options of the forecaster.

        Returns
        -------
        list of Forecast
            In the order of the pairs.

        Raises
        ------
        UnknownNameError
            If it is no forecaster of ours that takes part; those that came with the data cannot be asked again.
        """
        from dataclasses import replace

        from kfs.data.manifest import cache_folder
        from kfs.forecast import run_folds

        if name not in self.config.forecasters:
            raise unknown_name("forecaster that can be asked", name, self.config.forecasters, "name one with forecaster=...")
        given = {p.comparison_id: p for p in pairs}
        folds = [replace(f, test=[given[p.comparison_id] for p in f.test if p.comparison_id in given]) for f in self.folds()]
        options = {**self.config.forecaster[name], **changed}
        found = run_folds(name, options, [f for f in folds if f.test], cache_dir=cache_folder() / "forecasts")
        by_id = {f.comparison_id: f for f in found}
        return [by_id[p.comparison_id] for p in pairs]

    def prompt_pairs(self) -> list[Pair]:
        """The part of the sample that notebook 06_prompts asks every prompt for."""
        from kfs.pairs import stratified_sample

        ids = self.sample()
        sample = [p for p in self.test_pairs() if p.comparison_id in ids]
        return stratified_sample(sample, self.config.prompts.size, self.rng("prompts"))

    def frame(self, names: Iterable[str] | None = None) -> pd.DataFrame:
        """Forecasts beside what was measured, one row each; see :func:`kfs.report.tables.tidy`.

        Parameters
        ----------
        names : iterable of str, optional
            Forecasters; by default all that take part. Column ``in_sample`` marks the rows of the sample.
        """
        from kfs.report import style
        from kfs.report.tables import tidy

        style.assign(self._released)
        names = list(names or self.forecasters)
        return tidy(self.test_pairs(), {name: self.forecasts(name) for name in names}, self.sample())

    def recalibrated(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Tidy rows, then those of :attr:`lead` and :attr:`sample_lead` mapped by vector scaling: what a reader costs to mend.

        The map is learnt from other tasks than those it is applied to (:func:`kfs.report.deferral.recalibrate`); forecasters are
        named after it, for example ``boosted + vector``.
        """
        import pandas as pd

        from kfs.report.deferral import recalibrate

        there = set(frame["forecaster"])
        names = [name for name in dict.fromkeys((self.lead, self.sample_lead)) if name in there]
        if not names:
            return frame
        made = recalibrate(frame[frame["forecaster"].isin(names)], self.calibration_frame(names), ("vector",))
        return pd.concat([frame, made], ignore_index=True)

    def on_every_pair(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of the forecasters that forecast every test pair, recalibrated ones among them; see :attr:`everywhere`."""
        from kfs.report.deferral import RECALIBRATIONS, mapped_name

        names = {*self.everywhere, *(mapped_name(name, how) for name in self.everywhere for how in RECALIBRATIONS)}
        return frame[frame["forecaster"].isin(names)]

    def calibration_frame(self, names: Iterable[str] | None = None) -> pd.DataFrame | None:
        """Like :meth:`frame`, of the calibration split; None where one task is left out at a time."""
        from kfs.report.tables import tidy

        if not (pairs := self.calibration_pairs()):
            return None
        return tidy(pairs, {name: self.calibration_forecasts(name) for name in names or self.forecasters})

    def save_table(self, name: str, table: pd.DataFrame) -> pd.DataFrame:
        """Write ``tables/<name>.csv`` and return the table."""
        text = table.to_csv(index=False, lineterminator="\n")
        self._tables[name] = f"tables/{name}.csv"
        self._write(f"tables/{name}.csv", text.encode())
        return table

    def save_figure(self, name: str, figure: Figure) -> Image:
        """Write ``figures/<name>.png`` and ``.pdf``; return what the cell shows."""
        from IPython.display import Image

        from kfs.report import style

        caption = figure.get_label()
        for kind, data in style.render(figure).items():
            self._write(f"figures/{name}.{kind}", data)
        self._figures[name] = caption
        png = (self.out_dir / "figures" / f"{name}.png").read_bytes()
        return Image(data=png, width=int(figure.get_figwidth() * 100), alt=caption)

    def save_records(self, name: str, records: Sequence[Record]) -> Path:
        """Write ``records/<name>.parquet``; a file of the next step, not listed among a run's results."""
        return write_records(records, self.out_dir / "records" / f"{name}.parquet")

    def finish(self) -> None:
        """State what was made. A notebook that did not come this far is unfinished."""
        if self._notebook:
            made = {"tables": self._tables, "figures": self._figures, "files": self._files}
            atomic_write(self.out_dir / "logs" / f"{self._notebook}.outputs.json", json.dumps(made, indent=1).encode())
        place = self.out_dir.relative_to(self.run_dir.parents[1])
        print(f"{len(self._tables)} tables and {len(self._figures)} figures in {place}")

    def _write(self, file: str, data: bytes) -> None:
        atomic_write(self.out_dir / file, data)
        self._files[file] = hashlib.sha256(data).hexdigest()


def start(study: str = "embedded", overrides: str | Sequence[str] = "", out_dir: str | Path | None = None) -> Run:
    """Begin a notebook: compose the study's configuration and open its run folder.

    Parameters
    ----------
    study : str
        A file of ``conf/study``.
    overrides : str or sequence of str
        Hydra overrides, for example ``"debug=tiny seed=1"``.
    out_dir : path, optional
        The run's folder; default ``runs/<study>/<digest>`` in the checkout, as the runner has it. Without the runner, tables
        and figures go to its subfolder ``lab``.

    Returns
    -------
    Run

    Raises
    ------
    UnknownNameError
        If a study, key, forecaster or notebook does not exist; lists those that do.
    DataError
        If the study's data is absent; names the command that fetches it.
    """
    root = project_root()
    config = compose(study, as_list(overrides), root=root)
    data = sources.data_digests(config)
    folder = Path(out_dir) if out_dir else sources.run_folder(config, data, root / "runs")
    folder.mkdir(parents=True, exist_ok=True)
    notebook = os.environ.get("KFS_NOTEBOOK", "")
    if notebook:
        _progress_as_text()
    return Run(config, folder, notebook)


def _progress_as_text() -> None:
    """Let progress bars write to stderr, which the runner shows; it could not show a widget."""
    import tqdm.auto
    import tqdm.std

    tqdm.auto.tqdm = tqdm.std.tqdm
