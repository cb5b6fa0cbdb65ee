"""Reading many prompts that share their beginnings, with exact gradients, and no layer computed twice that never changes.

A prompt has three parts: instructions (one for all), what the candidates of a reference share, and the candidate. Each is read
once, after the keys and values of the parts before it; a step's gradients go back through the shared parts once, with the sum
of what every candidate sent. The numbers are those of whole prompts, and what is saved is tokens: 8 candidates of a reference
cost their own tokens and one prefix.

The layers below the lowest adapter are frozen, so what they make of a part is kept, in memory or in a folder: later epochs,
other runs and other adapters begin above them. And of what the top layer makes, only a prompt's last token is used: its MLP, most
of a layer's arithmetic, computes no other.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kfs.errors import TrainingError
from kfs.forecast.local import Parts
from kfs.records import content_id

_IN_MEMORY = 4 << 30
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of every layer, shape (1, heads, tokens, size)."""


@dataclass(frozen=True)
class Group:
    """Prompts of one reference: the parts they share, and the candidates' own."""

    system: tuple[int, ...]
    shared: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """Tokens read where the prefix is shared, instructions aside."""
        return len(self.shared) + sum(map(len, self.candidates))


def grouped(prompts: Sequence[Parts], most: int | None = None) -> list[tuple[Group, list[int]]]:
    """Prompts by what they share, at most so many a group, in order of first appearance, with each candidate's position."""
    found: dict[tuple, list[int]] = {}
    for i, (system, shared, _) in enumerate(prompts):
        found.setdefault((system, shared), []).append(i)
    some = [
        (key, rows[i : i + (most or len(rows))]) for key, rows in found.items() for i in range(0, len(rows), most or len(rows))
    ]
    return [(Group(*key, tuple(prompts[i][2] for i in rows)), rows) for key, rows in some]


class Frozen:
    """What frozen layers made of parts of prompts: the latest in memory, all of them in a folder where one is given.

    Parameters
    ----------
    folder : Path, optional
        Other runs find there what this one made.
    """

    def __init__(self, folder: Path | None = None):
        self._folder = folder and Path(folder)
        self._memory: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._held = 0

    def get(self, key: str) -> torch.Tensor | None:
        """A part's states, or None."""
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        if self._folder is None or not (path := self._folder / f"{key}.npy").is_file():
            return None
        state = torch.from_numpy(np.load(path))
        self._remember(key, state)
        return state

    def put(self, key: str, state: torch.Tensor) -> None:
        """Keep a part's states."""
        if key in self._memory:
            return
        self._remember(key, state)
        if self._folder is not None and not (path := self._folder / f"{key}.npy").exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".part")
            with os.fdopen(handle, "wb") as file:
                np.save(file, state.float().cpu().numpy())
            os.replace(temporary, path)

    def clear(self) -> None:
        """Let go of what lies in memory."""
        self._memory.clear()
        self._held = 0

    def _remember(self, key: str, state: torch.Tensor) -> None:
        self._memory[key] = state
        self._held += state.nbytes
        while self._held > _IN_MEMORY and len(self._memory) > 1:
            self._held -= self._memory.popitem(last=False)[1].nbytes


class SharedReader:
    """A causal language model that reads groups of prompts up to their last token.

    Parameters
    ----------
    model : transformers causal language model
        Its decoder's layers lie in ``layers``; adapters, if any, are already in place.
    trained_layers : int
        How many of the last layers may change; those below are frozen and their outputs kept.
    frozen : Frozen, optional
        Where what the frozen layers make of parts is kept; by default the reader has a memory of its own.
    identity : str, optional
        What the frozen layers are, for keys where several readers share a memory.

    Raises
    ------
    TrainingError
        If the layers differ in kind and not all of them are trained.
    """

    def __init__(self, model, trained_layers: int, *, frozen: Frozen | None = None, identity: str = ""):
        decoder = model.get_decoder()
        n = len(decoder.layers)
        if not 0 < trained_layers <= n:
            raise ValueError(f"trained_layers: found {trained_layers}, the model has {n} layers")
        if trained_layers < n and not alike(decoder):
            raise TrainingError(f"layers of this model differ in kind, so all {n} are trained together: write train.layers=null")
        self.model, self._cut = model, n - trained_layers
        self._lower = _part(decoder, 0, self._cut)
        self._upper = _part(decoder, self._cut, n, final=decoder.norm)
        self._head = model.get_output_embeddings()
        self._frozen, self._identity = frozen or Frozen(), f"{identity} {self._cut}"
        self._at: tuple[torch.Tensor, torch.Tensor] | None = None
        _only_at(decoder.layers[-1].mlp, lambda: self._at)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def logits(self, group: Group) -> torch.Tensor:
        """Next-token logits after each candidate of a group, shape (n_candidates, vocabulary), without gradients."""
        with torch.no_grad():
            states = self._states(group)
            system = self._read(states[0], [])
            shared = self._read(states[1], [system])
            return self._ends(states[2], [system, shared])

    def steps(self, groups: Sequence[Group]) -> Iterator[tuple[Group, torch.Tensor]]:
        """Logits with gradients, group after group; whoever iterates calls ``backward`` on what it makes of each.

        Gradients of parts that groups share are summed and sent back once, after the last group of equal instructions: iterate
        to the end before the optimiser's step.
        """
        by_system: dict[tuple[int, ...], list[Group]] = {}
        for group in groups:
            by_system.setdefault(group.system, []).append(group)
        for same in by_system.values():
            first = [self._states(group) for group in same[:1]]
            system = self._read(first[0][0], [])
            system_leaf = _leaves(system)
            for i, group in enumerate(same):
                states = first[0] if i == 0 else self._states(group)
                shared = self._read(states[1], [system_leaf])
                shared_leaf = _leaves(shared)
                yield group, self._ends(states[2], [system_leaf, shared_leaf])
                _send_back(shared, shared_leaf)
            _send_back(system, system_leaf)

    def whole(self, prompts: Sequence[Parts]) -> torch.Tensor:
        """Logits of whole prompts, one by one, with gradients, nothing shared or kept: what sharing is compared with."""
        rows = [torch.tensor([[t for part in parts for t in part]], device=self.device) for parts in prompts]
        last = [self._upper(inputs_embeds=self._lower(input_ids=x).last_hidden_state).last_hidden_state[:, -1] for x in rows]
        return self._head(torch.cat(last))

    def _above(self, at: tuple[torch.Tensor, torch.Tensor], **given) -> Any:
        """The upper layers; of the top one's output only rows and positions ``at`` are used, so its MLP computes no others."""
        self._at = at
        try:
            return self._upper(use_cache=True, **given)
        finally:
            self._at = None

    def _below(self, ids: torch.Tensor, cache) -> tuple[torch.Tensor, Any]:
        """What the frozen layers make of token ids after a cache, and the new cache."""
        out = self._lower(input_ids=ids, past_key_values=cache, use_cache=True)
        return out.last_hidden_state, out.past_key_values

    def _states(self, group: Group) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """Outputs of the frozen layers for the parts of a group, each of shape (1, tokens, width)."""
        parts = [(group.system,), (group.system, group.shared), *((group.system, group.shared, c) for c in group.candidates)]
        keys = [content_id(self._identity, repr(p)) for p in parts]
        states = [self._frozen.get(key) for key in keys]
        if any(s is None for s in states):
            with torch.no_grad():
                ids = lambda tokens: torch.tensor([tokens], device=self.device)
                a, cache = self._below(ids(group.system), None)
                b, cache = self._below(ids(group.shared), cache)
                made = [a, b, *(self._below(ids(c), copy.deepcopy(cache))[0] for c in group.candidates)]
            states = [m if s is None else s for m, s in zip(made, states, strict=True)]
            for key, state in zip(keys, states, strict=True):
                self._frozen.put(key, state)
        states = [state.to(self.device) for state in states]
        return states[0], states[1], states[2:]

    def _read(self, states: torch.Tensor, before: Sequence[Pairs]) -> Pairs:
        """Keys and values of one row of states, this part's alone, in the upper layers."""
        cache = _cache(before, 1)
        start = cache.get_seq_length()
        nowhere = torch.empty(0, dtype=torch.long, device=self.device)
        out = self._above((nowhere, nowhere), inputs_embeds=states, past_key_values=cache)
        return [(layer.keys[:, :, start:], layer.values[:, :, start:]) for layer in out.past_key_values.layers]

    def _ends(self, candidates: Sequence[torch.Tensor], before: Sequence[Pairs]) -> torch.Tensor:
        """Logits after the last token of each candidate; shorter ones are filled up behind it, which nothing before it sees."""
        last = torch.tensor([c.shape[1] - 1 for c in candidates], device=self.device)
        longest = int(last.max()) + 1
        rows = torch.cat([torch.nn.functional.pad(c, (0, 0, 0, longest - c.shape[1])) for c in candidates])
        at = (torch.arange(len(candidates), device=self.device), last)
        out = self._above(at, inputs_embeds=rows, past_key_values=_cache(before, len(candidates)))
        return self._head(out.last_hidden_state[at])


def _only_at(mlp: torch.nn.Module, where) -> None:
    """Let a gated MLP compute some rows and positions alone, as long as ``where`` names some; others are 0."""
    if not (hasattr(mlp, "gate_proj") and hasattr(mlp, "down_proj")):
        return  # not row by row, for all that is known
    whole = mlp.forward

    def forward(x):
        at = where()
        return whole(x) if at is None else torch.zeros_like(x).index_put(at, whole(x[at]))

    mlp.forward = forward


def alike(decoder: Any) -> bool:
    """Whether a decoder's layers are all of one kind, so that some of them can be read without the others."""
    return len(set(getattr(decoder.config, "layer_types", None) or ["full"])) == 1


def _part(decoder, begin: int, end: int, *, final=None):
    """A decoder of some of the layers, which stay the same objects: no copy of any weight."""
    part = copy.copy(decoder)
    part._modules = dict(decoder._modules)
    part.layers = torch.nn.ModuleList(decoder.layers[begin:end])
    part.norm = final or torch.nn.Identity()
    for i, layer in enumerate(part.layers):
        layer.self_attn.layer_idx = i  # where its keys and values lie in the part's own cache
    return part


def _cache(before: Sequence[Pairs], rows: int):
    """A cache that holds the parts before, for so many rows."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for i, layer in enumerate(zip(*before, strict=True)):
        keys, values = (torch.cat(parts, dim=-2).expand(rows, -1, -1, -1) for parts in zip(*layer, strict=True))
        cache.update(keys, values, i)
    return cache


def _leaves(pairs: Pairs) -> Pairs:
    """Copies that gather gradients instead of sending them on."""
    return [tuple(x.detach().requires_grad_(x.requires_grad) for x in pair) for pair in pairs]


def _send_back(made: Pairs, leaves: Pairs) -> None:
    """Send the gradients gathered in leaves back through what made them."""
    flat = [(m, x.grad) for pair, leaf in zip(made, leaves, strict=True) for m, x in zip(pair, leaf, strict=True)]
    flat = [(m, g) for m, g in flat if g is not None and m.requires_grad]
    if flat:
        torch.autograd.backward([m for m, _ in flat], [g for _, g in flat])
