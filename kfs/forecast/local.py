"""A causal language model in this process, by transformers.

``readout``: the prompt ends where the model would name a bin; the forecast is the softmax of the next-token logits over the
eight tokens that name one, and their total probability is kept. A prompt has three parts: instructions, what all candidates of
a reference share, and the candidate. The first two are computed once for all calls that share them, and their key-value cache
is reused; since each part is always computed by itself, sharing does not change a bit of an answer (``batch`` above 1 may
change the last ones). ``verbal``: answers are sampled, ``batch`` at a time, those of like length together.
"""

from __future__ import annotations

import copy
import ctypes
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal

from kfs.errors import DataError, KfsError, MissingDependencyError, unknown_name
from kfs.forecast.adapter import adapter_id, first_layer, merged, read_card, require_weights, weights_id
from kfs.forecast.answer import Answer, Call
from kfs.forecast.cache import library_versions
from kfs.forecast.language import Done, LanguageModel
from kfs.forecast.prompt import Prompt
from kfs.forecast.smollm2 import converted_smollm2, gguf_file
from kfs.records import content_id
from kfs.speedup import N_BINS

DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
"""Number format of the weights on each device."""
ANSWERS = (("Bin: ", ""), ("Bin:", " "))
"""How a readout may begin, and what stands before the digit in its token: tokenisers differ."""
_TOGETHER = 8
"""Candidates of a reference that an adapted model reads at once."""
_MARKS = ("\x01system\x01", "\x01shared\x01", "\x01candidate\x01")
Parts = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass
class Local(LanguageModel):
    """Bin probabilities of a transformers causal language model, untrained for the task."""

    form: Literal["verbal", "readout"] = "readout"
    cases: bool = False
    hardware: bool = False
    max_output_tokens: int = 400
    model: str = "smollm2"
    """``smollm2`` (SmolLM2-135M-Instruct), or the path of a folder that transformers can load."""
    max_tokens: int = 832
    """Longest prompt; the two sources share equally what the rest leaves."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: a CUDA GPU where there is one. Weights are float32 on a CPU and bfloat16 on CUDA."""
    adapter: str = ""
    """Folder of a LoRA adapter in peft's form, for example one that ``kfs train`` wrote; empty for none."""
    batch: int = 1
    """Candidates of a reference (readout) or prompts of like length (verbal) that are computed at once."""

    name: ClassVar[str] = "local"
    libraries: ClassVar[tuple[str, ...]] = ("torch", "transformers")

    def __post_init__(self):
        super().__post_init__()
        if self.device not in (*DTYPES, "auto"):
            raise unknown_name("device of forecaster 'local'", self.device, (*DTYPES, "auto"), "kfs/forecast/local.py")

    def model_id(self) -> str:
        """Digest of all that can change a number: weights, device and number format, this file, versions of the libraries.

        Raises
        ------
        DataError
            If the model is not on this machine; names the command that fetches it.
        """
        model = content_id(self.layers_id(), Path(__file__).read_text(encoding="utf-8"))
        if not self.adapter:
            return model
        code = Path(__file__).with_name("shared.py").read_text(encoding="utf-8")
        return content_id(model, adapter_id(self.adapter), code, library_versions(["peft"]))

    def layers_id(self) -> str:
        """Digest of what the model's layers compute, whatever they are asked: weights, device and number format, libraries."""
        if self.model == "smollm2":
            weights = gguf_file().sha256
        else:
            files = sorted(p for p in _model_folder(self.model).iterdir() if p.is_file())
            weights = json.dumps([(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files])
        return content_id(weights, self._device, DTYPES[self._device], library_versions(self.libraries))

    def weights_id(self) -> str:
        """Identity of the weights alone, the same on every machine; see :func:`kfs.forecast.adapter.weights_id`."""
        return weights_id(self._folder)

    def learnt_from(self) -> list[str]:
        """Families of tasks the adapter's training or early stopping has seen, as far as its card says."""
        card = read_card(self.adapter) if self.adapter else None
        return card.learnt if card else []

    def room(self) -> int:
        """Tokens for the three texts of a prompt, beside what the chat's own marks take."""
        return self.max_tokens - len(self._encode("".join(self._frame))) - 8  # texts tokenise a little differently side by side

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._encode(text))

    def ask(self, calls: Sequence[Call], done: Done) -> None:
        """Answer calls; the model is loaded on the first one."""
        import torch

        with torch.inference_mode():
            (self._read_out if self.form == "readout" else self._sample)(calls, done)

    def parts(self, prompt: Prompt) -> Parts:
        """Token ids of a prompt, as the model reads it, in its three parts."""
        before, between, apart, after = self._frame
        pieces = (before + prompt.system, between + prompt.shared, apart + prompt.candidate + after)
        return tuple(tuple(self._encode(piece)) for piece in pieces)

    def _read_out(self, calls: Sequence[Call], done: Done) -> None:
        """Next-token logits; calls in the order of their parts, so that those that share some come together."""
        import torch

        if self._above:
            return self._read_above(calls, done)
        parts = {id(c): self.parts(c.prompt) for c in calls}
        tokens = list(self._answer[1])
        system, shared = None, None
        begin = time.perf_counter()
        for (a, b), group in groupby(sorted(calls, key=lambda c: parts[id(c)]), key=lambda c: parts[id(c)][:2]):
            if system is None or system[0] != a:
                system = (a, self._read([a], None)[1])
            if shared is None or shared[0] != (a, b):
                shared = ((a, b), self._read([b], system[1])[1])
            for some in _batches(sorted(group, key=lambda c: len(parts[id(c)][2])), self.batch):
                logits, _ = self._read([parts[id(c)][2] for c in some], shared[1])
                log_p = torch.log_softmax(logits.double(), dim=-1)[:, tokens].cpu().tolist()
                now = time.perf_counter()
                for call, row in zip(some, log_p, strict=True):
                    size = sum(map(len, parts[id(call)]))
                    seconds = (now - begin) / len(some)
                    done(call, Answer(log_probabilities=tuple(row), input_tokens=size, output_tokens=0, elapsed_s=seconds))
                begin = time.perf_counter()

    def _read_above(self, calls: Sequence[Call], done: Done) -> None:
        """As ``_read_out``, with what the layers below the adapter make of prompts kept for the next adapter."""
        import torch

        from kfs.forecast.shared import SharedReader, grouped

        reader = SharedReader(self._model, self._above, frozen=_frozen(), identity=self.layers_id())
        tokens = list(self.bin_tokens)
        for group, rows in grouped([self.parts(c.prompt) for c in calls], max(self.batch, _TOGETHER)):
            begin = time.perf_counter()
            log_p = torch.log_softmax(reader.logits(group).double(), dim=-1)[:, tokens].cpu().tolist()
            seconds = (time.perf_counter() - begin) / len(rows)
            prefix = len(group.system) + len(group.shared)
            for i, own, row in zip(rows, group.candidates, log_p, strict=True):
                size = prefix + len(own)
                done(calls[i], Answer(log_probabilities=tuple(row), input_tokens=size, output_tokens=0, elapsed_s=seconds))

    def _read(self, rows: Sequence[Sequence[int]], cache: Any) -> tuple[Any, Any]:
        """Read token ids after what a cache (left as it is) holds; logits after each row's last token, and the new cache.

        Shorter rows are filled up at their end, which nothing before it sees.
        """
        import torch

        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=self._model.device)
        held = copy.deepcopy(cache)
        if held is not None and len(rows) > 1:
            held.batch_repeat_interleave(len(rows))
        last = torch.tensor([len(row) - 1 for row in rows], device=self._model.device)
        ends, where = torch.unique(last, return_inverse=True)
        out = self._model(ids, past_key_values=held, use_cache=True, logits_to_keep=ends)
        return out.logits[torch.arange(len(rows), device=ids.device), where], out.past_key_values

    def _sample(self, calls: Sequence[Call], done: Done) -> None:
        """Sampled answers; a batch's random numbers follow from what it asks."""
        import torch

        ids = {id(c): [t for part in self.parts(c.prompt) for t in part] for c in calls}
        for some in _batches(sorted(calls, key=lambda c: len(ids[id(c)])), self.batch):
            begin, rows = time.perf_counter(), [ids[id(c)] for c in some]
            longest = max(map(len, rows))
            pad = self._tokeniser.pad_token_id if self._tokeniser.pad_token_id is not None else 0
            batch = torch.tensor([[pad] * (longest - len(r)) + r for r in rows], device=self._model.device)
            mask = torch.tensor([[0] * (longest - len(r)) + [1] * len(r) for r in rows], device=self._model.device)
            how = {"do_sample": True, "temperature": self.temperature, "top_k": 0} if self.temperature else {"do_sample": False}
            with torch.random.fork_rng():
                torch.manual_seed(int(content_id(*(c.key("", {}) for c in some)), 16) % 2**63)
                out = self._model.generate(
                    batch, attention_mask=mask, max_new_tokens=self.max_output_tokens, pad_token_id=pad, **how
                )
            seconds, ends = (time.perf_counter() - begin) / len(some), self._ends
            for call, row in zip(some, out[:, longest:].tolist(), strict=True):
                size = next((i for i, t in enumerate(row) if t in ends), len(row))
                why = "stop" if size < len(row) else "length"
                text = self._tokeniser.decode(row[:size], skip_special_tokens=False)
                done(call, Answer(text, (), "", (), len(ids[id(call)]), size, None, seconds, why))

    @cached_property
    def _ends(self) -> set[int]:
        """Tokens that end an answer."""
        given = self._model.generation_config.eos_token_id
        return set(given if isinstance(given, list) else [given]) - {None}

    @cached_property
    def _frame(self) -> tuple[str, str, str, str]:
        """What stands before, between and after the three texts of a prompt; without a chat template, blank lines."""
        opening = self._answer[0] if self.form == "readout" else ""
        if not self._tokeniser.chat_template:
            return "", "\n\n", "", "\n" + opening
        messages = [{"role": "system", "content": _MARKS[0]}, {"role": "user", "content": _MARKS[1] + _MARKS[2]}]
        text = self._tokeniser.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + opening
        pieces = []
        for mark in _MARKS:
            before, found, text = text.partition(mark)
            if not found:
                raise KfsError(f"{self.model}: its chat template leaves out a system or user message; use another model")
            pieces.append(before)
        return *pieces, text

    def _encode(self, text: str) -> list[int]:
        return list(self._encoded(text))

    @cached_property
    def _encoded(self):
        return lru_cache(maxsize=512)(lambda text: tuple(self._tokeniser.encode(text, add_special_tokens=False)))

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
        if _plain_tokeniser(self._folder):
            from transformers import PreTrainedTokenizerFast as Tokeniser  # without the models' code: half the seconds
        else:
            from transformers import AutoTokenizer as Tokeniser
        return Tokeniser.from_pretrained(self._folder, local_files_only=True)

    def load(self) -> Any:
        """The model as transformers loads it, adapter merged, on its device; a new copy each time."""
        _need_transformers()
        import torch
        from transformers import AutoModelForCausalLM

        dtype = getattr(torch, DTYPES[self._device])
        model = AutoModelForCausalLM.from_pretrained(self._folder, dtype=dtype, local_files_only=True)
        if self.adapter:
            require_weights(self.adapter, self._folder)
            model = merged(model, self.adapter)
        return model.to(self._device).eval()

    @cached_property
    def _model(self) -> Any:
        return self.load()

    @cached_property
    def _above(self) -> int:
        """How many of the last layers an adapter changes, where those below can be read without them; else 0."""
        from kfs.forecast.shared import alike

        first = first_layer(self.adapter) if self.adapter else 0
        decoder = self._model.get_decoder() if first else None
        return len(decoder.layers) - first if first and alike(decoder) else 0

    @property
    def bin_tokens(self) -> tuple[int, ...]:
        """Token of each bin's number at the end of a readout's prompt."""
        return self._answer[1]

    @cached_property
    def _answer(self) -> tuple[str, tuple[int, ...]]:
        """How the answer begins, and the token of each bin's number after it."""
        return bin_tokens(self._encode, self.model)


def bin_tokens(encode: Callable[[str], list[int]], model: str) -> tuple[str, tuple[int, ...]]:
    """How a model's readout begins, and the token of each bin's number after it.

    Raises
    ------
    KfsError
        If its tokeniser has no single token for one of them.
    """
    for opening, space in ANSWERS:
        start = encode(opening)
        whole = [encode(f"{opening}{space}{b}") for b in range(1, N_BINS + 1)]
        if all(w[:-1] == start for w in whole) and len({w[-1] for w in whole}) == N_BINS:
            return opening, tuple(w[-1] for w in whole)
    raise KfsError(f"{model}: no single token for each number from 1 to {N_BINS}; use another model")


def _model_folder(model: str) -> Path:
    folder = Path(model).expanduser()
    if not (folder / "config.json").is_file():
        raise DataError(f"model {model!r}: no config.json there; give the path of a model's folder, or 'smollm2'")
    return folder


@cache
def _frozen() -> Any:
    """What this process's models make of prompts below their adapters."""
    from kfs.forecast.shared import Frozen

    return Frozen()


def _plain_tokeniser(folder: Path) -> bool:
    """Whether ``tokenizer.json`` says all there is to know of a model's tokeniser."""
    try:
        said = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("tokenizer_class")
    except (OSError, ValueError, AttributeError):
        return False
    return (folder / "tokenizer.json").is_file() and said in ("TokenizersBackend", "PreTrainedTokenizerFast")


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


def _batches(calls: Sequence[Call], size: int) -> Iterator[Sequence[Call]]:
    for i in range(0, len(calls), max(size, 1)):
        yield calls[i : i + size]
