"""SmolLM2-135M-Instruct from its GGUF file to a folder transformers loads at once.

The file's 4-bit weights are dequantised to float32 and saved with configuration and tokeniser under ``models`` in the cache:
reading the tokeniser alone from the GGUF file takes longer than a small study. Other models are not converted; give a folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from kfs.data import manifest
from kfs.errors import MissingDependencyError
from kfs.records import content_id

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def gguf_file() -> manifest.DataFile:
    """The model's entry in the manifest."""
    return manifest.dataset("smollm2").file("SmolLM2-135M-Instruct.Q4_1.gguf")


def converted_smollm2() -> Path:
    """Folder with SmolLM2 as safetensors; made on first use of this code, and only ever seen whole.

    Raises
    ------
    DataError
        If the GGUF file is not on this machine; names the command that fetches it.
    MissingDependencyError
        If the ``gguf`` package is not installed.
    """
    code = content_id(Path(__file__).read_text(encoding="utf-8"))  # a conversion by other code is another folder
    target = manifest.cache_folder() / "models" / f"smollm2-{gguf_file().sha256[:16]}-{code}"
    if target.is_dir():
        return target
    source = manifest.path("smollm2", gguf_file().path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".smollm2."))
    try:
        _convert(source, temporary)
        temporary.chmod(0o755)
        try:
            os.rename(temporary, target)
        except OSError:  # another process was first
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _convert(source: Path, folder: Path) -> None:
    try:
        from gguf import GGUFReader, dequantize
    except ImportError as error:
        raise MissingDependencyError(
            "SmolLM2 comes as a GGUF file; reading it needs gguf: `pip install -e '.[lm]' -c constraints.txt`"
        ) from error
    import torch
    from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = LlamaForCausalLM(config)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in GGUFReader(source).tensors:
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if not tensor.name.startswith("blk."):
            name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[tensor.name]
        else:
            _, layer, part, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
            if part in heads:  # GGUF interleaves the two halves of a head's rotary dimensions
                rows, columns = values.shape
                values = values.reshape(heads[part], rows // heads[part] // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
        weights[name] = values
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"} or not config.tie_word_embeddings:
        raise ValueError(f"{source.name}: tensors missing {missing} or unknown {unexpected}; another release of the model?")
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True).save_pretrained(folder)
