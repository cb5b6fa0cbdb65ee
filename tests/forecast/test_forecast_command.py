import json

import pytest

from kfs.bench.processors import hardware_names, load_hardware
from kfs.cli import main
from kfs.forecast import command

from .server import Server, completion

pytest.importorskip("openai")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))
    for name, body in (("reference", "x.softmax(-1)"), ("candidate", "x.exp() / x.exp().sum(-1, keepdim=True)")):
        (tmp_path / f"{name}.py").write_text(f"import torch\n\n\ndef kernel(x):\n    return {body}\n")
    return [str(tmp_path / "reference.py"), str(tmp_path / "candidate.py")]


def sure(handler, request, number):
    text = json.dumps({"reason": "two passes", "probabilities": [0, 0, 0, 0.9, 0.1, 0, 0, 0], "bin": 4})
    handler.give(completion({"role": "assistant", "content": text}))


def forecast(files, server, *more):
    return main(["forecast", *files, "forecaster=endpoint", f"base_url={server.url}", "hardware=h100", *more])


def test_a_distribution_is_drawn_and_a_sure_forecast_is_trusted(files, capsys):
    with Server(sure) as server:
        assert forecast(files, server, "task=softmax") == 0
        asked = server.requests[0]["messages"][1]["content"]
    out = capsys.readouterr().out
    assert "4 0.7071 < S <= 1       90.0% " + "█" * 40 in out and "5 1 < S <= 1.414        10.0% ████▌" in out
    assert "trust    it expects to be 0.1 bins off, no more than 0.5" in out and "two passes" in out
    assert "rows 4096, cols 4096" in asked and "132 multiprocessors" in asked


def test_the_price_of_a_measurement_decides(files, capsys):
    with Server(sure) as server:
        assert forecast(files, server, "price=0.05", "--json") == 0
        assert forecast(files, server, "price=0.2", "--json") == 0
        assert len(server.requests) == 1  # the second answer was kept
    out = capsys.readouterr().out
    first, second = (json.loads(part) for part in out.replace("}\n{", "}\0{").split("\0"))
    assert (first["decision"], second["decision"]) == ("measure", "trust")
    assert first["forecast"]["predicted_bin"] == 4 and first["expected_loss_bins"] == pytest.approx(0.1)


def test_a_reply_that_is_no_forecast_says_so_and_is_measured(files, capsys):
    with Server(lambda handler, request, number: handler.give(completion({"role": "assistant", "content": "no idea"}))) as server:
        assert forecast(files, server) == 1
    out = capsys.readouterr().out
    assert "no forecast: no distribution" in out and "measure: no forecast" in out


def test_the_prompt_can_be_looked_at_without_asking_anyone(files, capsys):
    assert main(["forecast", *files, "forecaster=endpoint", "base_url=http://127.0.0.1:9/v1", "model=m", "--prompt"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("--- system\nYou forecast") and "x.softmax(-1)" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["price=cheap"], "price=cheap: expected a number of bins"),
        (["hardware=h1000"], "unknown hardware 'h1000' (did you mean 'h100'?)"),
        (["forecaster=boosted"], "learns from measured pairs; here one of endpoint, engine, local"),
        (["max_tokens=many"], "max_tokens=many: expected int"),
        (["batch=true"], "batch=true: expected int"),
        (["tempature=1"], "did you mean 'temperature'?"),
        (["nonsense"], "expected KEY=VALUE"),
        (["price=1", "price=2"], "given twice"),
    ],
)
def test_bad_options_are_named_with_what_is_allowed(files, capsys, words, message):
    assert main(["forecast", *files, *words]) == 1
    assert message in capsys.readouterr().err


def test_bad_files_are_named(files, tmp_path, capsys):
    (tmp_path / "empty.py").write_text("\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    for name, message in (("absent", "cannot be read"), ("empty", "is empty"), ("binary", "cannot be read as text")):
        assert main(["forecast", files[0], str(tmp_path / f"{name}.py")]) == 1
        assert message in capsys.readouterr().err


def test_at_least_twelve_gpus_are_described_with_sources_and_listed(capsys):
    assert main(["forecast", "--hardware"]) == 0
    listed = capsys.readouterr().out
    gpus = [load_hardware(name) for name in hardware_names()]
    assert {"t4", "a100", "h100", "b200", "mi250x", "mi300x"} <= {g.name for g in gpus} and len(gpus) >= 12
    assert all(g.sources and g.memory_bandwidth_gb_s and g.peak_tflops and g.title in listed for g in gpus)


def test_this_machine_is_described_without_being_named():
    found = command.this_hardware()
    assert found.architecture and found.title and found.sources
