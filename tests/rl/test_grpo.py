"""GRPO through TRL's trainer with a tiny random model: replies are parsed, rewarded and counted; killed runs go on."""

import numpy as np
import pytest

pytest.importorskip("peft")
pytest.importorskip("trl")

from kfs.errors import SchemaError, TrainingError, UnknownNameError
from kfs.forecast.adapter import read_card
from kfs.forecast.answer import Answer
from kfs.forecast.query import Query
from kfs.rl import grpo
from kfs.rl.grpo import GrpoTraining, rewards_of, train
from kfs.rl.progress import read_curve

STEPS = [(0, "test"), (1, "train"), (2, "train"), (3, "train"), (3, "test")]


@pytest.fixture
def fold(rng, made_up_fold):
    return made_up_fold(rng, 32)


@pytest.fixture
def options(small_random_model):
    def of(**changed):
        small = {"examples": 6, "group": 4, "groups": 2, "at_once": 4, "iterations": 3, "max_tokens": 4000, "rank": 2}
        small |= {"max_output_tokens": 6, "held_out": 3, "checkpoint_every": 1, "learning_rate": 0.01}
        return GrpoTraining(**{"model": str(small_random_model), **small, **changed})

    return of


def run(options, fold, folder, **more):
    return train(options, fold, folder, progress=False, say=lambda text: None, **more)


def test_rewards_look_at_the_stated_bin_beside_the_distribution_and_give_nothing_for_what_cannot_be_read(rng, made_up_pairs):
    (pair,) = made_up_pairs(rng, 1)
    pair = pair.model_copy(update={"true_bin": 4, "aggregated_speedup": 0.8})
    query = Query.from_pair(pair)
    sure = '{"probabilities": [0, 0, 0, 1, 0, 0, 0, 0], "bin": %d}'
    texts = [sure % 4, sure % 5, "I cannot say.", "again and again " * 3]
    forecasts = [Answer(t, finish_reason="length" if "again" in t else "stop").forecast(query, "x") for t in texts]
    found = rewards_of("exact_brier", forecasts, [pair] * 4)
    assert found == [2.0, 1.0, 0.0, 0.0]
    assert "length limit" in forecasts[3].parse_error


def test_a_run_answers_rewards_counts_and_leaves_an_adapter(options, fold, tmp_path):
    done = run(options(), fold, tmp_path, name="mine")
    points = read_curve(tmp_path)
    assert [(p.step, p.split) for p in points] == STEPS
    assert all(p.figures["parse_rate"] == 0 and p.figures["reward"] == 0 for p in points)  # it knows nothing
    assert all(p.figures["dropped"] == 1 for p in points if p.split == "train")
    assert all(p.figures["half_brier"] == pytest.approx(0.4375) for p in points)
    card = read_card(done.adapter)
    assert (card.name, card.steps, card.learnt) == ("mine", 3, ["pack0", "pack1"])
    assert card.asked["form"] == "verbal"


def test_a_killed_run_goes_on_at_its_last_checkpoint_and_counts_every_step_once(options, fold, tmp_path, monkeypatch):
    real, seen = grpo._Run._reward, []

    def dies(self, *args, **more):
        seen.append(more["trainer_state"].global_step)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(self, *args, **more)

    monkeypatch.setattr(grpo._Run, "_reward", dies)
    with pytest.raises(KeyboardInterrupt):
        run(options(), fold, tmp_path)
    assert not (tmp_path / "adapter").exists()
    run(options(), fold, tmp_path)
    assert seen == [0, 1, 2, 2]
    assert [(p.step, p.split) for p in read_curve(tmp_path)] == [
        (0, "test"),
        (1, "train"),
        (2, "train"),
        (3, "train"),
        (3, "test"),
    ]


def test_what_is_rewarded_is_answered_more_often(options, fold, tmp_path, monkeypatch):
    rates = []

    def likes_even_tokens(self, prompts, completions, completion_ids, row, trainer_state, **_):
        found = [float(np.mean([t % 2 == 0 for t in ids])) for ids in completion_ids]
        rates.append(np.mean(found))
        return found

    monkeypatch.setattr(grpo._Run, "_reward", likes_even_tokens)
    run(options(iterations=12, groups=4, at_once=16, learning_rate=0.05), fold, tmp_path)
    assert np.mean(rates[-3:]) > np.mean(rates[:3]) + 0.05


def test_groups_of_one_reward_weigh_neither_in_the_loss_nor_in_what_it_is_divided_by(options, fold, tmp_path, monkeypatch):
    from kfs.rl.dropping import DroppingTrainer

    made = []
    real = DroppingTrainer._generate_and_score_completions
    monkeypatch.setattr(
        DroppingTrainer, "_generate_and_score_completions", lambda self, inputs: made.append(real(self, inputs)) or made[-1]
    )
    monkeypatch.setattr(grpo._Run, "_reward", lambda self, prompts, **_: [0.0] * 4 + [0.0, 1.0, 0.0, 1.0])
    job = grpo._Run(options(iterations=1), fold, tmp_path, "x", 0, False, lambda text: None)
    trainer = job._trainer()
    trainer.train()
    (one,) = made
    assert int(one["num_items_in_batch"]) < int(one["completion_mask"].sum())


def test_a_loss_that_is_no_number_ends_the_run_in_words(options, fold, tmp_path, monkeypatch):
    from kfs.rl.dropping import DroppingTrainer

    real = DroppingTrainer.compute_loss
    monkeypatch.setattr(DroppingTrainer, "compute_loss", lambda self, *args, **more: real(self, *args, **more) * float("nan"))
    with pytest.raises(TrainingError, match=r"step 1: the loss is nan.*lower train\.learning_rate"):
        run(options(), fold, tmp_path)
    assert not (tmp_path / "adapter").exists()


def test_options_that_make_no_sense_and_models_that_do_not_chat_are_refused(options, fold, tmp_path, tiny_random_model):
    with pytest.raises(UnknownNameError, match="unknown rollouts 'vlm'"):
        options(rollouts="vlm")
    with pytest.raises(SchemaError, match="3 does not divide group"):
        options(at_once=3)
    with pytest.raises(SchemaError, match=r"train\.group must be at least 2"):
        options(group=1)
    with pytest.raises(TrainingError, match="no chat template"):
        run(options(model=str(tiny_random_model)), fold, tmp_path)
