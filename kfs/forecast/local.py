"""A causal language model in this process, read out without sampling.

The prompt ends where the model would name a bin; the forecast is the softmax of the next-token logits over the eight tokens
that name one, and their total probability before renormalising is kept as ``raw_probability_sum``. A prompt has three parts:
instructions and task, reference, candidate. The first two are computed once for all queries that share them, and their
key-value cache is reused; since each part is always computed by itself, sharing does not change a bit of the answer. Nothing
is trained here, and no text is generated. Long sources are cut in the middle, visibly, and the forecast's ``reasoning`` says
by how much.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from kfs.errors import DataError, KfsError, MissingDependencyError, unknown_name
from kfs.forecast.query import Query
from kfs.forecast.smollm2 import converted_smollm2, gguf_file
from kfs.records import Forecast, Pair, content_id
from kfs.speedup import N_BINS, STUDY_BINS

TEMPLATE = Path(__file__).parent / "templates" / "readout.md"
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
"""Number format of the weights on each device."""
CUT_MARK = "\n# [... cut: {} tokens ...]\n"
ANSWERS = (("Bin: ", ""), ("Bin:", " "))
"""How the answer may begin, and what stands before the digit in its token: tokenisers differ."""
_ANCHOR, _CANDIDATE = "\x01anchor\x01", "\x01candidate\x01"


@dataclass(frozen=True)
class Prompt:
    """Token ids of one query in three parts: what its task decides, what its reference decides, and the rest."""

    parts: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    notes: str
    """What was cut; empty where nothing was."""


@dataclass
class Local:
    """Bin probabilities of a transformers causal language model, untrained for the task."""

    model: str = "smollm2"
    """``smollm2`` (SmolLM2-135M-Instruct), or the path of a folder that transformers can load."""
    max_tokens: int = 640
    """Longest prompt; the two sources share equally what the rest leaves."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: a CUDA GPU where there is one. Weights are float32 on a CPU and bfloat16 on CUDA."""

    name: ClassVar[str] = "local"
    learns: ClassVar[bool] = False
    chunk_size: ClassVar[int] = 16
    libraries: ClassVar[tuple[str, ...]] = ("torch", "transformers")

    def __post_init__(self):
        if self.device not in (*DTYPES, "auto"):
            raise unknown_name("device of forecaster 'local'", self.device, (*DTYPES, "auto"), "kfs/forecast/local.py")

    def fit(self, train: Sequence[Pair], calibration: Sequence[Pair]) -> Local:
        """Learn nothing."""
        return self

    def model_id(self) -> str:
        """Digest of the weights' identity, the prompt, and the device and number format used, for caches.

        Raises
        ------
        DataError
            If the model is not on this machine; names the command that fetches it.
        """
        if self.model == "smollm2":
            weights = gguf_file().sha256
        else:
            folder = _model_folder(self.model)
            files = sorted(p for p in folder.iterdir() if p.is_file())
            weights = json.dumps([(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files])
        return content_id(weights, TEMPLATE.read_text(), self._device, DTYPES[self._device])

    def forecast(self, queries: Sequence[Query], *, progress: bool = False) -> list[Forecast]:
        """One forecast a query, in order; the model is loaded on the first call."""
        import torch
        from tqdm.auto import tqdm

        prompts = [self.prompt(q) for q in queries]
        forecasts: list[Forecast | None] = [None] * len(queries)
        held, cache = ((), (), ()), None
        with torch.inference_mode(), tqdm(total=len(queries), desc=self.name, unit="pair", disable=not progress) as bar:
            for i in sorted(range(len(queries)), key=lambda i: prompts[i].parts):
                start, q, parts = time.perf_counter(), queries[i], prompts[i].parts
                shared = 0 if parts[0] != held[0] else 1 if parts[1] != held[1] else 2
                if shared:
                    cache.crop(-sum(len(part) for part in held[shared:]))
                else:
                    cache = None
                for part in parts[shared:]:
                    ids = torch.tensor([part], device=self._model.device)
                    out = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                    cache = out.past_key_values
                held = parts
                log_p = torch.log_softmax(out.logits[0, -1].double(), dim=-1)[list(self._answer[1])]
                forecasts[i] = Forecast.from_probabilities(
                    q.comparison_id,
                    q.pack,
                    self.name,
                    np.clip(log_p.exp().cpu().numpy(), 1e-300, None),
                    reasoning=prompts[i].notes,
                    input_tokens=sum(map(len, parts)),
                    output_tokens=0,
                    elapsed_s=time.perf_counter() - start,
                )
                bar.update()
        return forecasts

    def prompt(self, query: Query) -> Prompt:
        """Token ids for a query, within ``max_tokens``.

        Raises
        ------
        ValueError
            If ``max_tokens`` leaves no room for the sources.
        """
        text = TEMPLATE.read_text().format(
            task="".join(f"{k}: {v}\n" for k, v in (("Task", query.title), ("Signature", query.signature)) if v),
            hardware=query.hardware,
            bins="\n".join(f"{row['bin']}: {row['interval']} ({row['name']})" for row in STUDY_BINS.table()),
            n_bins=N_BINS,
            language=query.language,
            anchor=_ANCHOR,
            candidate=_CANDIDATE,
        )
        if self._tokeniser.chat_template:
            messages = [{"role": "user", "content": text.strip()}]
            text = self._tokeniser.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        head, rest = (text + self._answer[0]).split(_ANCHOR)
        middle, tail = (self._encode(part) for part in rest.split(_CANDIDATE))
        head = self._encode(head)
        room = (self.max_tokens - len(head) - len(middle) - len(tail)) // 2
        if room < 32:
            least = self.max_tokens + 2 * (32 - room)
            raise ValueError(f"max_tokens {self.max_tokens} leaves {room} tokens for each source; give at least {least}")
        anchor, lost_anchor = self._cut(query.anchor_code, room)
        candidate, lost_candidate = self._cut(query.candidate_code, room)
        notes = [f"{who} cut by {n} tokens" for who, n in (("reference", lost_anchor), ("candidate", lost_candidate)) if n]
        return Prompt((tuple(head), (*anchor, *middle), (*candidate, *tail)), "; ".join(notes))

    def _cut(self, code: str, room: int) -> tuple[list[int], int]:
        """Tokens of a source, its middle replaced by a mark where it is longer than ``room``, and how many were taken out."""
        ids = self._encode(code.strip())
        if len(ids) <= room:
            return ids, 0
        keep = room - len(self._encode(CUT_MARK.format(len(ids)))) - 2
        first, last = (keep + 1) // 2, keep // 2
        lost = len(ids) - first - last
        return ids[:first] + self._encode(CUT_MARK.format(lost)) + ids[len(ids) - last :], lost

    def _encode(self, text: str) -> list[int]:
        return self._tokeniser.encode(text, add_special_tokens=False)

    @cached_property
    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        if not _has_driver():
            return "cpu"
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    @cached_property
    def _folder(self) -> Path:
        _need_transformers()
        return converted_smollm2() if self.model == "smollm2" else _model_folder(self.model)

    @cached_property
    def _tokeniser(self) -> Any:
        _need_transformers()
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._folder, local_files_only=True)

    @cached_property
    def _model(self) -> Any:
        _need_transformers()
        import torch
        from transformers import AutoModelForCausalLM

        dtype = getattr(torch, DTYPES[self._device])
        return AutoModelForCausalLM.from_pretrained(self._folder, dtype=dtype, local_files_only=True).to(self._device).eval()

    @cached_property
    def _answer(self) -> tuple[str, tuple[int, ...]]:
        """How the answer begins, and the token of each bin's number after it."""
        for opening, space in ANSWERS:
            start = self._encode(opening)
            whole = [self._encode(f"{opening}{space}{b}") for b in range(1, N_BINS + 1)]
            if all(w[:-1] == start for w in whole) and len({w[-1] for w in whole}) == N_BINS:
                return opening, tuple(w[-1] for w in whole)
        raise KfsError(f"{self.model}: no single token for each number from 1 to {N_BINS}; use another model")


def _model_folder(model: str) -> Path:
    folder = Path(model).expanduser()
    if not (folder / "config.json").is_file():
        raise DataError(f"model {model!r}: no config.json there; give the path of a model's folder, or 'smollm2'")
    return folder


def _has_driver() -> bool:
    """Whether this machine has NVIDIA's driver. Asked first: importing torch to learn of a CPU takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _need_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "forecaster 'local' needs transformers; install it with `pip install -e '.[lm]' -c constraints.txt`"
        ) from error
