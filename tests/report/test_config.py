import argparse

import pytest

from kfs.errors import KfsError, SchemaError, UnknownNameError
from kfs.report import command
from kfs.report.config import (
    compose,
    config_digest,
    describe,
    study_names,
    sweep,
    to_yaml,
)
from kfs.report.schemas import (
    CudaL1Data,
    EmbeddedData,
    PublishedData,
)


def test_every_study_reads_its_own_data():
    assert study_names() == ["cuda_l1", "embedded", "live", "published"]
    assert isinstance(compose("embedded").data, EmbeddedData)
    assert isinstance(compose("cuda_l1").data, CudaL1Data)
    assert isinstance(compose("published").data, PublishedData)


def test_every_forecaster_takes_part_by_default_and_one_alone_can_be_chosen():
    assert compose().forecasters == [
        "prior",
        "variant_table",
        "anchor_only",
        "candidate_only",
        "code_length",
        "boosted",
        "local",
    ]
    assert compose("cuda_l1").forecasters == [*compose().forecasters[:-1], "boosted_facts", "local"]  # its kernels compile
    assert (
        compose(overrides="forecaster=boosted").forecasters == compose("cuda_l1", "forecaster=boosted").forecasters == ["boosted"]
    )
    assert "local" not in compose(overrides="forecaster.local=null").forecasters


def test_the_local_sample_holds_at_least_240_pairs_by_default():
    config = compose()
    assert config.sample.size >= 240
    assert config.sample.forecasters == ["local", "endpoint", "engine"]


@pytest.mark.parametrize("override", ["sed=1", "bootstrap.n=3", "forecaster.boosted.tree=1", "seed.x=1", "hydra.job.chdir=true"])
def test_an_unknown_key_is_refused_with_the_keys_that_exist(override):
    with pytest.raises(UnknownNameError, match=r"unknown config key .*known: "):
        compose(overrides=[override])


@pytest.mark.parametrize("override", ["+sed=1", "++typo.x=1", "~sed"])
def test_an_added_or_removed_key_that_does_not_exist_lists_what_does(override):
    with pytest.raises(
        UnknownNameError, match="known: bootstrap, data, debug, forecaster, notebooks, prices, prompts, sample, seed, study"
    ):
        compose(overrides=[override])


@pytest.mark.parametrize("override", ["+seed=1", "++seed=1", "~seed", "+forecaster=boosted"])
def test_plus_and_tilde_are_refused_even_for_keys_that_exist(override):
    with pytest.raises(KfsError, match="neither added nor removed"):
        compose(overrides=[override])


def test_a_nearby_key_is_suggested():
    with pytest.raises(UnknownNameError, match="did you mean 'seed'"):
        compose(overrides="sed=1")


@pytest.mark.parametrize("override", ["forecaster=oracle", "data=hub", "debug=huge"])
def test_an_unknown_group_choice_lists_the_choices(override):
    with pytest.raises(UnknownNameError, match="known: "):
        compose(overrides=[override])


def test_an_unknown_study_lists_the_studies():
    with pytest.raises(UnknownNameError, match="known: cuda_l1, embedded, live, published"):
        compose("embeded")


def test_an_unknown_notebook_lists_the_notebooks():
    with pytest.raises(UnknownNameError, match="01_measurements, 02_accuracy"):
        compose(overrides="notebooks=[66_more]")


def test_an_option_of_a_forecaster_that_takes_no_part_is_refused():
    with pytest.raises(UnknownNameError, match="takes no part here"):
        compose(overrides="forecaster=prior forecaster.boosted.seed=1")


@pytest.mark.parametrize(
    "override",
    ["seed=x", "data.source=cuda_l1", "seed=-1", "bootstrap.level=2", "bootstrap.n_resamples=0", "sample.size=no"],
)
def test_a_value_of_the_wrong_type_or_range_is_refused(override):
    with pytest.raises(SchemaError):
        compose(overrides=[override])


@pytest.mark.parametrize("gpus", ["[]", "[h100,a100,h100]"])
def test_no_gpu_or_one_twice_is_refused_with_the_gpus_there_are(gpus):
    with pytest.raises(SchemaError, match=r"each once, found .*known: 3090, a100, h100, h20, l40"):
        compose("cuda_l1", f"data.gpus={gpus}")


def test_an_unknown_gpu_lists_the_gpus_there_are():
    with pytest.raises(UnknownNameError, match="unknown GPU of CUDA-L1 'b200'; known: 3090, a100"):
        compose("cuda_l1", "data.gpus=[b200]")


def test_paths_are_those_of_the_caller_wherever_the_configuration_is_composed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = "data.folder=mine/records forecaster.local.model=../model"
    here = compose("embedded", overrides)
    assert here.data.folder == str(tmp_path / "mine" / "records")
    assert here.forecaster["local"]["model"] == str(tmp_path.parent / "model")
    assert compose("embedded").forecaster["local"]["model"] == "smollm2"
    monkeypatch.setenv("KFS_CWD", str(tmp_path))
    monkeypatch.chdir("/")
    assert compose("embedded", overrides) == here


def test_several_values_without_a_sweep_name_the_flag():
    with pytest.raises(SchemaError, match="-m"):
        compose(overrides="seed=1,2")


def test_debug_tiny_makes_every_study_smaller_and_a_given_value_wins():
    for study in study_names():
        full, tiny = compose(study), compose(study, "debug=tiny")
        assert tiny.sample.size < full.sample.size
        assert tiny.bootstrap.n_resamples < full.bootstrap.n_resamples
        assert compose(study, "debug=tiny sample.size=50").sample.size == 50


def test_the_seed_of_the_study_reaches_the_forecasters_that_have_one():
    assert compose(overrides="seed=7").forecaster["boosted"]["seed"] == 7
    assert compose(overrides="seed=7 forecaster.boosted.seed=1").forecaster["boosted"]["seed"] == 1


def test_the_digest_changes_with_configuration_and_with_data_and_with_nothing_else():
    config = compose()
    digest = config_digest(config, {"a": "1"})
    assert digest == config_digest(compose(), {"a": "1"})
    assert digest != config_digest(config, {"a": "2"})
    assert digest != config_digest(compose(overrides="seed=1"), {"a": "1"})
    assert "seed: 0" in to_yaml(config)


def test_describe_gives_every_key_in_a_form_that_compose_accepts():
    lines = [line.split("  #")[0].strip() for line in describe(compose()).splitlines()]
    lines = [line for line in lines if not line.startswith("study=")]
    assert compose(overrides=lines) == compose()


def test_a_sweep_is_the_product_of_its_lists():
    assert sweep(["seed=0,1", "forecaster=prior,boosted"]) == [
        ["seed=0", "forecaster=prior"],
        ["seed=0", "forecaster=boosted"],
        ["seed=1", "forecaster=prior"],
        ["seed=1", "forecaster=boosted"],
    ]


def parse(*words):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["study", *words])


def test_the_sweep_flag_may_stand_anywhere(monkeypatch):
    seen = []
    monkeypatch.setattr(command, "_sweep", lambda name, overrides, jobs: seen.append((name, overrides)) or 0)
    for words in (
        ("embedded", "seed=0,1", "-m"),
        ("-m", "embedded", "seed=0,1"),
        ("embedded", "-m", "seed=0,1"),
        ("seed=0,1", "-m"),
    ):
        args = parse(*words)
        assert args.run(args) == 0
    assert seen == [("embedded", ["seed=0,1"])] * 4


def test_the_number_of_notebooks_at_a_time_may_stand_anywhere_and_is_checked(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(command, "_one", lambda name, overrides, jobs: seen.append((name, overrides, jobs)) or 0)
    for words in (("-j", "3", "embedded", "seed=1"), ("embedded", "seed=1", "-j3"), ("embedded", "--jobs=3", "seed=1")):
        args = parse(*words)
        assert args.run(args) == 0
    assert seen == [("embedded", ["seed=1"], 3)] * 3
    for words in (("embedded", "-j0"), ("embedded", "--jobs")):
        args = parse(*words)
        with pytest.raises(SystemExit):
            args.run(args)
        assert "expected a whole number from 1" in capsys.readouterr().err


def test_one_failing_job_of_a_sweep_leaves_the_others_and_the_status_tells(monkeypatch, capsys):
    ran = []

    def one(name, overrides, jobs):
        ran.append(overrides)
        if overrides == ["seed=1"]:
            raise SchemaError("broken")
        return 0

    monkeypatch.setattr(command, "_one", one)
    args = parse("embedded", "seed=0,1,2", "-m")
    assert args.run(args) == 1
    assert ran == [["seed=0"], ["seed=1"], ["seed=2"]]
    out = capsys.readouterr().out
    assert "FAILED  embedded seed=1: broken" in out
    assert "2 of 3 jobs finished" in out


def test_an_unknown_key_on_the_command_line_is_one_line_and_a_status(capsys):
    args = parse("embedded", "sed=1")
    assert args.run(args) == 1
    assert "unknown config key 'sed'" in capsys.readouterr().err
