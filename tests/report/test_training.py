import pytest

from kfs.cli import main
from kfs.errors import SchemaError, TrainingError, UnknownNameError
from kfs.report.training import compose_training, split_by_task, summary


def test_every_choice_of_train_composes_and_names_the_run():
    from kfs.report.config import _choices, project_root

    for name in _choices("train", project_root()):
        config = compose_training([f"train={name}", "data=tiny"])
        assert config.name == name
    assert compose_training(["train=supervised", "name=mine"]).name == "mine"
    assert compose_training(["train=supervised"]).train.learn == "supervised"
    assert compose_training(["train=control", "train.rank=3"]).train.rank == 3


def test_keys_and_choices_that_do_not_exist_are_refused_with_those_that_do():
    with pytest.raises(UnknownNameError, match=r"train choice 'ppo'.*readout_brier"):
        compose_training(["train=ppo"])
    with pytest.raises(UnknownNameError, match=r"config key 'train\.rnak'.*did you mean 'train\.rank'"):
        compose_training(["train.rnak=3"])
    with pytest.raises(UnknownNameError, match="config key 'forecaster'"):
        compose_training(["forecaster=all"])
    with pytest.raises(SchemaError, match="names a folder"):
        compose_training(["name=../x"])
    with pytest.raises(SchemaError, match="seed must be at least 0"):
        compose_training(["seed=-1"])


def test_tasks_of_a_fold_stand_where_they_are_named(rng, made_up_pairs):
    pairs = made_up_pairs(rng, 40)
    fold = split_by_task(pairs, ["pack3"], ["pack1"])
    assert [{p.pack for p in part} for part in (fold.train, fold.calibration, fold.test)] == [
        {"pack0", "pack2"},
        {"pack1"},
        {"pack3"},
    ]
    assert len(fold.train) + len(fold.calibration) + len(fold.test) == 40
    with pytest.raises(UnknownNameError, match=r"task of the data 'pack9'.*pack0"):
        split_by_task(pairs, ["pack9"], ["pack1"])
    with pytest.raises(TrainingError, match="named in test_tasks and in calibration_tasks"):
        split_by_task(pairs, ["pack1"], ["pack1"])


def test_the_command_shows_its_configuration(capsys):
    assert main(["train", "--config", "train=control"]) == 0
    out = capsys.readouterr().out
    assert "train.control=True" in out and "name=control" in out


def test_figures_before_and_after_stand_side_by_side():
    text = summary({"half_brier_before": 0.5, "half_brier_after": 0.4})
    assert "half brier        0.5000    0.4000" in text and "spearman               -         -" in text
