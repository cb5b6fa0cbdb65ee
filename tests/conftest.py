"""Fixtures shared by all tests. Tests run on a CPU, offline, and never depend on how fast the machine is."""

import os
import re
import string

import numpy as np
import pytest

from kfs.pairs import Fold
from kfs.records import Pair, content_id
from kfs.speedup import STUDY_BINS

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the study runner has it: beside busy processes, spinning costs most

WORDS = r"\d|[A-Za-z_]+|\s+|[^\w\s]"


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _save_random_llama(folder, vocabulary, **more):
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.3,
        **more,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="session")
def save_random_llama():
    """Writes a two-layer Llama with random weights into a folder, for so many tokens."""
    return _save_random_llama


@pytest.fixture(scope="session")
def tiny_random_model(tmp_path_factory, save_random_llama):
    """A two-layer Llama with random weights and one token a character: it knows nothing, but computes like a large one."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tiny-random-llama")
    characters = {c: i for i, c in enumerate(["<unk>", *string.printable])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(characters, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    core.decoder = tokenizers.decoders.Fuse()
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>").save_pretrained(folder)
    save_random_llama(folder, len(characters))
    return folder


LIBRARIES = {"torch": "torch.softmax(x, -1)", "numpy": "np.exp(x) / np.exp(x).sum()", "copy": "x.clone().contiguous().clone()"}


def source(library: str, passes: int) -> str:
    body = "\n".join(f"    x = {LIBRARIES[library]}" for _ in range(passes))
    return f"import torch\nimport numpy as np\n\n\ndef kernel(x):\n{body}\n    return x\n"


def _pairs(rng, n: int, packs: int = 4) -> list[Pair]:
    """Speedup is the ratio of passes, with a little noise."""
    pairs = []
    for i in range(n):
        (a, c), (passes_a, passes_c) = rng.choice(list(LIBRARIES), 2), rng.integers(1, 9, 2)
        speedup = float(passes_a / passes_c * 2 ** rng.normal(0, 0.1))
        pairs.append(
            Pair(
                comparison_id=content_id(str(i), str(rng.random())),
                pack=f"pack{i % packs}",
                anchor_code=source(a, passes_a),
                candidate_code=source(c, passes_c),
                hardware=("a100", "h100")[i % 2],
                aggregated_speedup=speedup,
                true_bin=STUDY_BINS.index(speedup),
                anchor_variant=str(a),
                candidate_variant=str(c),
            )
        )
    return pairs


def _fold(rng, n: int = 160) -> Fold:
    pairs = _pairs(rng, n)
    train, calibration, test = ([p for p in pairs if p.pack in packs] for packs in (("pack0", "pack1"), ("pack2",), ("pack3",)))
    return Fold("made_up", train, calibration, test)


def _distributions(forecasts) -> np.ndarray:
    return np.array([f.probabilities for f in forecasts])


@pytest.fixture(scope="session")
def made_up_pairs():
    return _pairs


@pytest.fixture(scope="session")
def made_up_fold():
    return _fold


@pytest.fixture(scope="session")
def distributions():
    """Forecasts as an array of shape (n, 8)."""
    return _distributions


@pytest.fixture(scope="session")
def small_random_model(tmp_path_factory, made_up_pairs, save_random_llama):
    """A two-layer Llama with random weights whose tokens are the words of made-up prompts."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from kfs.forecast.prompt import PromptOptions, build
    from kfs.forecast.query import Query

    texts = ["Bin: 12345678"]
    for pair in made_up_pairs(np.random.default_rng(1), 30):
        texts += [build(Query.from_pair(pair), PromptOptions(form=form)).text for form in ("readout", "verbal")]
    words = sorted({w for text in texts for w in re.findall(WORDS, text)})
    vocabulary = {w: i for i, w in enumerate(["<unk>", "<end>", *words])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
    core.decoder = tokenizers.decoders.Fuse()
    tokeniser = transformers.PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="<end>")
    tokeniser.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    folder = tmp_path_factory.mktemp("small-random-llama")
    tokeniser.save_pretrained(folder)
    save_random_llama(folder, len(vocabulary), eos_token_id=1)
    return folder
