import re

import numpy as np
import pytest

from kfs.data import manifest
from kfs.errors import DataError, KfsError, MissingDependencyError, UnknownNameError
from kfs.forecast import make, smollm2
from kfs.forecast.cache import AnswerCache
from kfs.forecast.query import Query


@pytest.fixture
def queries(rng, made_up_pairs):
    pairs = made_up_pairs(rng, 6)
    return [Query.from_pair(p.model_copy(update={"anchor_code": pairs[i % 2].anchor_code})) for i, p in enumerate(pairs)]


def test_a_tiny_random_model_with_shared_prefixes_answers_as_with_full_prompts(tiny_random_model, queries):
    import torch

    local = make("local", model=str(tiny_random_model), max_tokens=3000, device="cpu")
    forecasts = local.forecast(queries)
    assert [f.comparison_id for f in forecasts] == [q.comparison_id for q in queries]
    assert len({f.predicted_bin for f in forecasts} | {round(f.probabilities[0], 9) for f in forecasts}) > 2
    for query, forecast in zip(queries, forecasts, strict=True):
        ids = [t for part in local.parts(local.prompt(query)) for t in part]
        with torch.inference_mode():
            p = torch.softmax(local._model(torch.tensor([ids])).logits[0, -1].double(), dim=-1)[list(local._answer[1])].numpy()
        assert forecast.probabilities == pytest.approx(p / p.sum(), abs=1e-4)
        assert forecast.raw_probability_sum == pytest.approx(p.sum(), abs=1e-4)
        assert forecast.input_tokens == len(ids)


def test_a_tiny_random_model_answers_the_same_whatever_it_is_asked_with(tiny_random_model, queries):
    local = make("local", model=str(tiny_random_model), max_tokens=3000, device="cpu")
    together, alone = local.forecast(queries), [local.forecast([q])[0] for q in reversed(queries)]
    assert [f.bin_probabilities for f in together] == [f.bin_probabilities for f in alone[::-1]]


def test_a_tiny_random_model_answers_alike_one_by_one_and_in_batches(tiny_random_model, queries):
    one, four = (make("local", model=str(tiny_random_model), max_tokens=3000, device="cpu", batch=n) for n in (1, 4))
    for a, b in zip(one.forecast(queries), four.forecast(queries), strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-5)


def test_a_tiny_random_model_samples_verbal_answers_that_repeat_and_are_counted(tiny_random_model, queries):
    local = make(
        "local", model=str(tiny_random_model), max_tokens=3000, device="cpu", form="verbal", max_output_tokens=12, batch=4
    )
    first, again = local.forecast(queries), local.forecast(queries)
    assert [f.parse_error for f in first] == [f.parse_error for f in again]
    assert all(f.parse_failed and f.output_tokens <= 12 and f.input_tokens > 100 for f in first)
    assert any("length limit" in f.parse_error for f in first)


def test_a_prompt_is_read_as_the_chat_template_writes_it(tiny_random_model, queries):
    local = make("local", model=str(tiny_random_model), max_tokens=3000)
    local._tokeniser.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    prompt = local.prompt(queries[0])
    whole = local._tokeniser.apply_chat_template(prompt.messages, add_generation_prompt=True, tokenize=False)
    assert "".join(local._tokeniser.convert_ids_to_tokens([t for p in local.parts(prompt) for t in p])) == whole + "Bin: "


def test_long_sources_are_cut_visibly_and_the_forecast_says_so(tiny_random_model, queries):
    local = make("local", model=str(tiny_random_model), max_tokens=1800, device="cpu")
    query = Query(**{**vars(queries[0]), "anchor_code": "x", "candidate_code": "a" * 500 + "b" * 4000 + "c" * 500})
    prompt = local.prompt(query)
    parts = local.parts(prompt)
    text = local._tokeniser.decode([t for part in parts for t in part])
    assert sum(map(len, parts)) <= 1800
    kept = re.search(r"(a+b*)\n\.\.\. \[cut: (\d+) characters\] \.\.\.\n(b*c+)", text)
    assert len(kept[1]) + len(kept[3]) + int(kept[2]) == 5000
    (forecast,) = local.forecast([query])
    assert forecast.reasoning.startswith("candidate cut by ") and "reference" not in forecast.reasoning


def test_the_prompt_ends_where_the_model_would_name_a_bin(tiny_random_model, queries):
    local = make("local", model=str(tiny_random_model), max_tokens=3000)
    query = queries[0]
    system, reference, rest = ("".join(local._tokeniser.convert_ids_to_tokens(p)) for p in local.parts(local.prompt(query)))
    assert "1 < S <= 1.414" in system and query.hardware in reference
    assert query.anchor_code.strip() in reference and query.candidate_code.strip() in rest and rest.endswith("Bin: ")


def test_too_few_tokens_say_how_many_more_are_needed(tiny_random_model, queries):
    with pytest.raises(ValueError, match=r"tokens leave too little of the sources; raise max_tokens by at least (\d+)") as error:
        make("local", model=str(tiny_random_model), max_tokens=100).prompt(queries[0])
    least = 100 + int(str(error.value).rsplit(" ", 1)[1])
    make("local", model=str(tiny_random_model), max_tokens=least).prompt(queries[0])


def test_answers_are_kept_and_not_computed_again(tiny_random_model, queries, tmp_path, monkeypatch):
    cache = AnswerCache(tmp_path / "answers.sqlite")
    first = make("local", model=str(tiny_random_model), max_tokens=3000, device="cpu").forecast(queries, cache=cache)
    again = make("local", model=str(tiny_random_model), max_tokens=3000, device="cpu")
    monkeypatch.setattr(type(again), "ask", lambda *_: pytest.fail("asked again"))
    assert again.forecast(queries, cache=cache) == first
    cache.close()


def test_a_tokeniser_without_digits_is_refused(tiny_random_model, queries, monkeypatch):
    local = make("local", model=str(tiny_random_model))
    monkeypatch.setattr(type(local), "_encode", lambda self, text: [7] * len(text))
    with pytest.raises(KfsError, match="no single token for each number from 1 to 8"):
        local.prompt(queries[0])


def test_forecasts_on_a_cpu_and_on_cuda_are_never_taken_for_each_other(tiny_random_model, monkeypatch):
    import torch

    def model_id(device):
        return make("local", model=str(tiny_random_model), device=device).model_id()

    monkeypatch.setattr("kfs.forecast.local._has_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert model_id("auto") == model_id("cpu") != model_id("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert model_id("auto") == model_id("cuda") != model_id("cpu")


def test_an_unknown_device_is_refused_at_once_with_those_there_are():
    with pytest.raises(UnknownNameError, match=r"unknown device of forecaster 'local' 'gpu'.*; known: auto, cpu, cuda"):
        make("local", device="gpu")


def test_a_model_converted_by_other_code_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path))
    monkeypatch.setattr(manifest, "path", lambda name, file: tmp_path / "model.gguf")
    monkeypatch.setattr(smollm2, "_convert", lambda source, folder: (folder / "config.json").write_text("{}"))
    first = smollm2.converted_smollm2()
    assert first == smollm2.converted_smollm2() and (first / "config.json").is_file()
    (tmp_path / "smollm2.py").write_text("# mended\n")
    monkeypatch.setattr(smollm2, "__file__", str(tmp_path / "smollm2.py"))
    assert smollm2.converted_smollm2() != first
    assert len(list((tmp_path / "models").iterdir())) == 2


def test_absent_weights_name_the_command_that_fetches_them(tmp_path, monkeypatch, queries):
    pytest.importorskip("transformers")
    monkeypatch.setenv("KFS_CACHE", str(tmp_path))
    monkeypatch.delenv("KFS_MIRROR", raising=False)
    with pytest.raises(DataError, match="kfs data pull smollm2"):
        make("local").forecast(queries[:1])
    with pytest.raises(DataError, match=r"no config\.json there"):
        make("local", model=str(tmp_path)).model_id()


def test_absent_transformers_name_the_extra_that_brings_them(monkeypatch, queries):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[lm\]'"):
        make("local").forecast(queries[:1])


def test_smollm2_gives_a_sharper_than_random_readout_with_shared_prefixes_as_with_full_prompts(queries):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    try:
        manifest.path("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    except DataError as error:
        pytest.skip(f"SmolLM2 is not here: {error}")
    local = make("local", device="cpu")
    forecasts = local.forecast(queries[:3])
    assert all(f.raw_probability_sum > 0.5 for f in forecasts), "the model should want to answer with a bin's number"
    ids = [t for part in local.parts(local.prompt(queries[2])) for t in part]
    with torch.inference_mode():
        p = torch.softmax(local._model(torch.tensor([ids])).logits[0, -1].double(), dim=-1)[list(local._answer[1])].numpy()
    assert forecasts[2].probabilities == pytest.approx(p / p.sum(), abs=1e-4)
    words = local._tokeniser("The capital of France is", return_tensors="pt").input_ids
    with torch.inference_mode():
        following = int(np.argmax(local._model(words).logits[0, -1].numpy()))
    assert local._tokeniser.decode([following]).strip() == "Paris"
