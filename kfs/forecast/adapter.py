"""A trained adapter as a folder: LoRA weights in peft's form, and a card that says what they were trained on and how.

``adapter_config.json`` and ``adapter_model.safetensors`` are peft's, so that vLLM and others load them; ``kfs_card.json`` and
the curve of its training are ours. A folder is written whole or not at all. An adapter without a card (trained elsewhere) can be
used; what it has learnt from is then not known, and nothing is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kfs.errors import DataError, MissingDependencyError, SchemaError
from kfs.records import Record, content_id

_LAYER = re.compile(r"\.layers\.(\d+)\.")
CONFIG, WEIGHTS, CARD = "adapter_config.json", "adapter_model.safetensors", "kfs_card.json"


class AdapterCard(Record):
    """What an adapter is: the model under it, how it is asked, what it has learnt from, and how it fared."""

    name: str
    """Of the training run."""
    model: str
    """Identity of the model as it was asked, of ``Local.model_id`` without an adapter's part."""
    weights: str = ""
    """Identity of the weights it was trained on (:func:`weights_id`); with others it is refused."""
    asked: dict[str, Any] = Field(default_factory=dict)
    """Options of ``local`` it was trained with: what prompts hold and how long they are."""
    learnt: list[str] = Field(default_factory=list)
    """Families of tasks that training or early stopping has seen; it is never judged on them."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Options of the training run, seed included."""
    data: str = ""
    """Digest of the pairs it learnt from."""
    steps: int = Field(0, ge=0)
    """Optimiser's steps behind the weights that were kept."""
    figures: dict[str, float] = Field(default_factory=dict)
    """Held-out figures before and after, for example ``half_brier_before``."""
    versions: dict[str, str] = Field(default_factory=dict)


def read_card(folder: str | Path) -> AdapterCard | None:
    """The card of an adapter; None where it has none.

    Raises
    ------
    DataError
        If the folder holds no adapter.
    SchemaError
        If its card is not one.
    """
    folder = Path(folder).expanduser()
    missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise DataError(f"adapter {str(folder)!r}: no {missing[0]} there; give the folder that `kfs train` wrote, or peft's own")
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return AdapterCard.model_validate_json(text)
    except ValidationError as error:
        raise SchemaError(f"{folder / CARD}: not the card of an adapter: {error.errors()[0]['msg']}") from error


def write_adapter(folder: str | Path, save: Callable[[Path], None], card: AdapterCard) -> Path:
    """Write an adapter, whole or not at all, in place of what is there.

    Parameters
    ----------
    folder : path
    save : callable
        Writes ``adapter_config.json`` and ``adapter_model.safetensors`` into the folder it is given.
    card : AdapterCard
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        save(made)
        (made / "README.md").unlink(missing_ok=True)  # peft's form to fill in
        config = json.loads((made / CONFIG).read_text())
        config["base_model_name_or_path"] = ""  # a path of this machine, which the card's model replaces
        (made / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        (made / CARD).write_text(card.model_dump_json(indent=1) + "\n")
        made.chmod(0o755)
        if folder.exists():
            old = made.with_name(made.name + ".old")
            os.rename(folder, old)
            os.rename(made, folder)
            shutil.rmtree(old)
        else:
            os.rename(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def adapter_id(folder: str | Path) -> str:
    """Digest of an adapter's configuration and weights. Raises DataError if the folder holds none."""
    read_card(folder)
    folder = Path(folder).expanduser()
    return content_id(*(hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (CONFIG, WEIGHTS)))


def weights_id(folder: str | Path) -> str:
    """Identity of a model's weights, the same on every machine: of each tensor the name, shape and first row.

    Reading gigabytes to be surer is not worth it. Files in the older form of ``.bin`` count whole.
    """
    from safetensors import safe_open

    parts = []
    for path in sorted(p for p in Path(folder).iterdir() if p.suffix in (".safetensors", ".bin")):
        if path.suffix == ".bin":
            with open(path, "rb") as file:
                parts.append(hashlib.file_digest(file, "sha256").hexdigest())
            continue
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_slice(name)
                shape = tensor.get_shape()
                row = tensor[:1] if shape else file.get_tensor(name)
                parts.append(f"{name} {shape} {hashlib.sha256(row.float().numpy().tobytes()).hexdigest()}")
    return content_id(*parts)


def require_weights(folder: str | Path, model: str | Path) -> None:
    """Refuse an adapter whose card names other weights than those of the model's folder.

    Raises
    ------
    DataError
        If it does, or if the folder holds no adapter.
    """
    card = read_card(folder)
    if card and card.weights and card.weights != (found := weights_id(model)):
        asked = card.asked.get("model", "another model")
        raise DataError(
            f"adapter {str(folder)!r} was trained on other weights ({asked!r}, {card.weights}) "
            f"than those in {Path(model).name!r} ({found}); name the model it was trained on with model="
        )


def first_layer(folder: str | Path) -> int:
    """The lowest layer an adapter changes; 0 where it changes something outside the layers, too, such as embeddings."""
    from safetensors import safe_open

    read_card(folder)
    with safe_open(Path(folder).expanduser() / WEIGHTS, framework="pt") as file:
        names = list(file.keys())
    return min((int(m[1]) if (m := _LAYER.search(name)) else 0 for name in names), default=0)


def merged(model: Any, folder: str | Path) -> Any:
    """A transformers model with an adapter's weights added to its own.

    Raises
    ------
    DataError
        If the folder holds no adapter, or one for a model of another shape.
    MissingDependencyError
        If peft is not installed.
    """
    read_card(folder)
    try:
        from peft import PeftModel
    except ImportError as error:
        raise MissingDependencyError("an adapter needs peft: pip install -e '.[lm]' -c constraints.txt") from error
    try:
        return PeftModel.from_pretrained(model, Path(folder).expanduser()).merge_and_unload()
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        raise DataError(f"adapter {str(folder)!r} does not fit the model: {str(error).splitlines()[0]}") from error
