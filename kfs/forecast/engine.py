"""A language model served to this process by vLLM: batched, with a prefix cache, and LoRA adapters by path.

For machines with a GPU; an environment with vLLM and kfs (without its extras) is enough. All calls are handed over at once,
those that share a prefix together, a few hundred at a time so that a killed run keeps what was done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from kfs.errors import DataError, MissingDependencyError
from kfs.forecast.adapter import read_card, require_weights
from kfs.forecast.answer import Answer, Call
from kfs.forecast.cache import library_versions
from kfs.forecast.language import Done, LanguageModel
from kfs.forecast.local import bin_tokens
from kfs.forecast.prompt import answer_schema
from kfs.records import content_id

_AT_ONCE = 256
_SPARE_TOKENS = 64


@dataclass
class Engine(LanguageModel):
    """Bin probabilities of a model that vLLM runs here."""

    model: str = ""
    """Path of a model's folder (transformers' form)."""
    adapter: str = ""
    """Path of a LoRA adapter in peft's form; empty for none."""
    context: int = 8192
    """Tokens of prompt and answer together."""
    gpu_memory_share: float = 0.9
    """Of the GPU's memory, for weights and the key-value cache."""
    schema: bool = True
    """Hold verbal answers to their JSON schema; without it, the prompt alone asks for one, and a model may think first."""

    name: ClassVar[str] = "engine"
    libraries: ClassVar[tuple[str, ...]] = ("vllm", "torch")

    def model_id(self) -> str:
        """Digest of weights, adapter, number format and versions.

        Raises
        ------
        DataError
            If a folder is not there.
        """
        folders = [_folder(self.model, "config.json")]
        folders += [_folder(self.adapter, "adapter_config.json")] if self.adapter else []
        files = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for f in folders for p in sorted(f.iterdir()) if p.is_file()]
        return content_id("engine", json.dumps(files), library_versions(self.libraries))

    def learnt_from(self) -> list[str]:
        """Families of tasks the adapter's training or early stopping has seen, as far as its card says."""
        card = read_card(self.adapter) if self.adapter else None
        return card.learnt if card else []

    def sampling(self) -> dict[str, Any]:
        """What of the options decides an answer beside the prompt."""
        return super().sampling() | ({"schema": self.schema} if self.form == "verbal" else {})

    def room(self) -> int:
        """Tokens a prompt may have."""
        return self.context - (self.max_output_tokens if self.form == "verbal" else 1) - _SPARE_TOKENS

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._tokeniser.encode(text, add_special_tokens=False))

    def ask(self, calls: Sequence[Call], done: Done) -> None:
        """Answer calls; the engine is started by the first one."""
        order = sorted(calls, key=lambda c: (c.prompt.system, c.prompt.shared, c.repeat))
        for i in range(0, len(order), _AT_ONCE):
            some, begin = order[i : i + _AT_ONCE], time.perf_counter()
            messages = [c.prompt.messages for c in some]
            how: dict[str, Any] = {"use_tqdm": False, "lora_request": self._lora}
            if self.form == "readout":
                opening, tokens = self._opening
                messages = [[*m, {"role": "assistant", "content": opening}] for m in messages]
                how |= {"add_generation_prompt": False, "continue_final_message": True}
            outputs = self._engine.chat(messages, [self._parameters(c) for c in some], **how)
            seconds = (time.perf_counter() - begin) / len(some)
            for call, output in zip(some, outputs, strict=True):
                common = {
                    "input_tokens": len(output.prompt_token_ids),
                    "output_tokens": len(output.outputs[0].token_ids),
                    "cached_tokens": output.num_cached_tokens,
                    "elapsed_s": seconds,
                    "finish_reason": output.outputs[0].finish_reason or "",
                }
                if self.form == "readout":
                    listed = output.outputs[0].logprobs[0]
                    done(call, Answer(log_probabilities=tuple(listed[t].logprob for t in tokens), **common))
                else:
                    done(call, Answer(output.outputs[0].text, **common))

    def _parameters(self, call: Call) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        if self.form == "readout":  # all eight tokens, however unlikely; the whole vocabulary's normalisation is kept
            return SamplingParams(max_tokens=1, temperature=0.0, logprobs=-1)
        held = StructuredOutputsParams(json=answer_schema()) if self.schema else None
        return SamplingParams(
            max_tokens=self.max_output_tokens, temperature=self.temperature, seed=call.repeat, structured_outputs=held
        )

    @cached_property
    def _engine(self) -> Any:
        try:
            from vllm import LLM
        except ImportError as error:
            raise MissingDependencyError(
                "forecaster 'engine' needs vLLM on a GPU machine, in an environment of its own: pip install -e '.[vllm]'"
            ) from error
        vocabulary = {"max_logprobs": -1} if self.form == "readout" else {}
        return LLM(
            str(_folder(self.model, "config.json")),
            max_model_len=self.context,
            enable_prefix_caching=True,
            gpu_memory_utilization=self.gpu_memory_share,
            enable_lora=bool(self.adapter),
            **vocabulary,
        )

    @cached_property
    def _tokeniser(self) -> Any:
        return self._engine.get_tokenizer()

    @cached_property
    def _lora(self) -> Any:
        if not self.adapter:
            return None
        from vllm.lora.request import LoRARequest

        folder = _folder(self.adapter, "adapter_config.json")
        require_weights(folder, _folder(self.model, "config.json"))
        return LoRARequest("adapter", 1, str(folder))

    @cached_property
    def _opening(self) -> tuple[str, tuple[int, ...]]:
        """How a readout begins, and the token of each bin's number after it."""
        return bin_tokens(lambda text: self._tokeniser.encode(text, add_special_tokens=False), self.model)


def _folder(given: str, needed: str) -> Path:
    folder = Path(given).expanduser()
    if not given or not (folder / needed).is_file():
        raise DataError(f"engine: {given or 'no path'!r} is no folder with {needed}; give model= (and adapter=) by path")
    return folder
