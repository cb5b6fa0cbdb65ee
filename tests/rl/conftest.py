"""A model that trains in seconds: random weights, a token a word, and a chat template."""

import re

import numpy as np
import pytest

WORDS = r"\d|[A-Za-z_]+|\s+|[^\w\s]"


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
