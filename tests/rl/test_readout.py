"""Training a readout end to end with a tiny random model: it learns, stops, goes on after a kill, and fails in words."""

import json
import math
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")

from kfs.errors import DataError, SchemaError, TrainingError, UnknownNameError  # noqa: E402
from kfs.forecast import make, shared  # noqa: E402
from kfs.forecast.adapter import CARD, CONFIG, WEIGHTS, first_layer, read_card  # noqa: E402
from kfs.forecast.query import Query  # noqa: E402
from kfs.rl import readout  # noqa: E402
from kfs.rl.examples import choose  # noqa: E402
from kfs.rl.progress import CHECKPOINT, Progress, read_curve  # noqa: E402
from kfs.rl.readout import ReadoutTraining, train  # noqa: E402
from kfs.score import half_brier  # noqa: E402


@pytest.fixture
def fold(rng, made_up_fold):
    return made_up_fold(rng, 64)


@pytest.fixture
def options(small_random_model):
    def of(**changed):
        small = {"examples": 24, "calibration": 12, "held_out": 12, "batch": 6, "epochs": 2, "layers": 1, "rank": 4}
        small |= {"evaluate_every": 2, "checkpoint_every": 3, "learning_rate": 2e-2, "max_tokens": 3000}
        return ReadoutTraining(**{"model": str(small_random_model), **small, **changed})

    return of


def run(options, fold, folder, **more):
    return train(options, fold, folder, progress=False, say=lambda text: None, **more)


def curve(folder):
    """The curve without what a clock decides."""
    return [(p.step, p.split, {k: v for k, v in p.figures.items() if k != "seconds"}) for p in read_curve(folder)]


@pytest.mark.parametrize(
    "changed", [{}, {"reward": "crps"}, {"reward": {"ranked": 1.0, "log": 2.0}}, {"learn": "supervised"}, {"control": True}]
)
def test_training_lowers_half_brier_on_what_it_is_trained_on(options, fold, tmp_path, changed):
    run(options(epochs=12, evaluate_every=99, **changed), fold, tmp_path)
    steps = [p.figures["half_brier"] for p in read_curve(tmp_path) if p.split == "train"]
    assert np.mean(steps[-4:]) < np.mean(steps[:4]) - 0.01


def test_sampled_bins_raise_the_reward_they_are_weighed_by(options, fold, tmp_path):
    run(options(learn="sampled", reward="exact", epochs=16, evaluate_every=99), fold, tmp_path)
    steps = [p.figures["reward"] for p in read_curve(tmp_path) if p.split == "train"]
    assert np.mean(steps[-4:]) > np.mean(steps[:4]) + 0.01


def test_sampled_gradients_are_on_average_those_of_the_expected_reward(options, fold, tmp_path):
    job = readout._Run(options(learn="sampled", reward="exact", samples=20_000), fold, tmp_path, "x", 0, None, False, print)
    job.tokens, rows = torch.arange(8), [0, 1, 2]
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    job._loss(logits, rows, torch.Generator().manual_seed(0)).backward()
    sampled, logits.grad = logits.grad.clone(), None
    p = logits.softmax(-1)
    hit = torch.tensor([job.train.pairs[i].true_bin - 1 for i in rows])
    chance = p.gather(1, hit[:, None])[:, 0]
    spread = (chance * (1 - chance)).sqrt().detach()  # what group-relative advantages are divided by
    (-(chance / spread).sum()).backward()
    torch.testing.assert_close(sampled, logits.grad, atol=0.03, rtol=0.05)


def test_the_adapter_forecasts_what_the_card_says_and_is_refused_on_tasks_it_has_seen(
    options, fold, tmp_path, small_random_model
):
    done = run(options(epochs=6), fold, tmp_path, name="made_up", seed=3)
    card = read_card(done.adapter)
    assert (card.name, card.training["seed"], card.steps) == ("made_up", 3, done.steps)
    assert card.learnt == ["pack0", "pack1", "pack2"]
    trained = make("local", adapter=str(done.adapter), device="cpu", **card.asked)
    pairs = choose(fold.test, options().held_out, options().per_reference, "test")
    found = np.array([f.probabilities for f in trained.forecast([Query.from_pair(p) for p in pairs])])
    assert half_brier(found, [p.true_bin for p in pairs]) == pytest.approx(card.figures["half_brier_after"], abs=2e-4)
    plain = make("local", device="cpu", **card.asked)
    assert trained.model_id() != plain.model_id() and trained.learnt_from() == card.learnt
    from kfs.forecast.cache import AnswerCache
    from kfs.pairs import Fold

    turned = Fold("turned", fold.test, [], fold.calibration)
    with pytest.raises(TrainingError, match="has learnt from 1 of the tasks"):
        trained.forecast_folds([turned], ("test",), progress=False, cache=AnswerCache(tmp_path / "answers.sqlite"))


def test_a_run_that_is_killed_at_any_step_goes_on_to_the_same_curve_and_weights(options, fold, tmp_path, monkeypatch):
    whole = run(options(), fold, tmp_path / "whole")
    for n in (1, 4):

        def dies(self, *args, real=readout._Run._step, n=n):
            if args[1] == n + 1 and not (tmp_path / f"killed{n}" / "again").exists():
                raise KeyboardInterrupt
            return real(self, *args)

        monkeypatch.setattr(readout._Run, "_step", dies)
        with pytest.raises(KeyboardInterrupt):
            run(options(), fold, tmp_path / f"killed{n}")
        assert not (tmp_path / f"killed{n}" / "adapter").exists()
        (tmp_path / f"killed{n}" / "again").touch()
        again = run(options(), fold, tmp_path / f"killed{n}")
        assert curve(tmp_path / f"killed{n}") == curve(tmp_path / "whole")
        assert (again.adapter / WEIGHTS).read_bytes() == (whole.adapter / WEIGHTS).read_bytes()


def test_a_run_that_is_killed_while_its_adapter_is_written_looks_at_the_held_out_pairs_once_more(
    options, fold, tmp_path, monkeypatch
):
    whole = run(options(checkpoint_every=1), fold, tmp_path / "whole")

    def dies(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(readout, "write_adapter", dies)
        with pytest.raises(KeyboardInterrupt):
            run(options(checkpoint_every=1), fold, tmp_path / "killed")
    again = run(options(checkpoint_every=1), fold, tmp_path / "killed")
    assert again.figures == whole.figures and curve(tmp_path / "killed") == curve(tmp_path / "whole")


def test_seeds_differ_in_start_and_order_and_not_in_what_they_see(options, fold, tmp_path):
    jobs = [readout._Run(options(), fold, tmp_path / str(seed), "x", seed, None, False, print) for seed in (0, 1)]
    assert jobs[0].train.pairs == jobs[1].train.pairs
    assert jobs[0]._plan() != jobs[1]._plan()
    assert sorted(i for step in jobs[0]._plan()[:4] for i in step) != []


def test_an_epoch_reads_every_example_once(options, fold, tmp_path):
    job = readout._Run(options(epochs=1), fold, tmp_path, "x", 0, None, False, print)
    read = sorted(i for step in job._plan() for i in step)
    assert read == list(range(len(job.train.groups)))


def test_it_stops_when_the_calibration_pairs_get_no_better_and_keeps_the_best(options, fold, tmp_path):
    done = run(options(learning_rate=1.0, epochs=50, patience=2, evaluate_every=1), fold, tmp_path)
    looks = Progress(tmp_path).restore() and [
        (p.step, p.figures["half_brier"]) for p in read_curve(tmp_path) if p.split == "calibration"
    ]
    assert looks[-1][0] < 100 and done.steps == min(looks, key=lambda x: x[1])[0]


def test_a_loss_that_is_no_number_ends_the_run_with_step_and_advice_and_no_adapter(options, fold, tmp_path, monkeypatch):
    real = readout._Run._loss
    monkeypatch.setattr(readout._Run, "_loss", lambda self, logits, rows, draws: real(self, logits, rows, draws) * math.nan)
    with pytest.raises(TrainingError, match=r"step 1: the loss is nan.*lower train\.learning_rate"):
        run(options(), fold, tmp_path)
    assert not (tmp_path / "adapter").exists() and (tmp_path / CHECKPOINT).exists()


def test_memory_that_does_not_suffice_is_said_with_advice(options, fold, tmp_path, monkeypatch):
    def full(self, *args):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(readout._Run, "_step", full)
    with pytest.raises(TrainingError, match=r"out of memory \(CUDA out of memory.*lower train\.per_reference"):
        run(options(), fold, tmp_path)


def test_a_broken_checkpoint_is_named(options, fold, tmp_path):
    (tmp_path / CHECKPOINT).write_bytes(b"no checkpoint")
    with pytest.raises(TrainingError, match=r"checkpoint\.pt: not a readable checkpoint.*delete it"):
        run(options(), fold, tmp_path)


def test_adapters_that_are_none_or_do_not_fit_are_refused_in_words(options, fold, tmp_path, small_random_model):
    with pytest.raises(DataError, match=r"no adapter_config\.json there"):
        make("local", model=str(small_random_model), adapter=str(tmp_path)).model_id()
    done = run(options(), fold, tmp_path / "run")
    with pytest.raises(DataError, match="does not fit the model"):
        config = json.loads((done.adapter / CONFIG).read_text())
        (done.adapter / CONFIG).write_text(json.dumps(config | {"r": 7}))
        make("local", model=str(small_random_model), adapter=str(done.adapter), device="cpu").load()
    (done.adapter / CARD).write_text('{"name": 3}')
    with pytest.raises(SchemaError, match="not the card of an adapter"):
        read_card(done.adapter)


def test_an_adapter_is_refused_on_other_weights_than_it_was_trained_on(options, fold, tmp_path, small_random_model):
    done = run(options(), fold, tmp_path / "run")
    other = shutil.copytree(small_random_model, tmp_path / "other")
    tensors = safetensors.load_file(other / "model.safetensors")
    tensors["model.norm.weight"] += 0.5
    safetensors.save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    assert make("local", model=str(small_random_model), adapter=str(done.adapter), device="cpu").load() is not None
    with pytest.raises(DataError, match="was trained on other weights"):
        make("local", model=str(other), adapter=str(done.adapter), device="cpu").load()


def test_an_adapter_that_changes_more_than_layers_has_no_frozen_layers(options, fold, tmp_path):
    done = run(options(), fold, tmp_path / "run")
    assert first_layer(done.adapter) == 1  # of two, the last is trained
    weights = safetensors.load_file(done.adapter / WEIGHTS)
    weights["base_model.model.model.embed_tokens.lora_A.weight"] = torch.zeros(2, 3)
    safetensors.save_file(weights, done.adapter / WEIGHTS)
    assert first_layer(done.adapter) == 0


def test_an_adapted_model_reads_as_the_merged_one_and_adapters_share_what_lies_below(options, fold, tmp_path, monkeypatch):
    first, second = (run(options(epochs=3, rank=r), fold, tmp_path / str(r)) for r in (2, 3))
    asked = read_card(first.adapter).asked
    queries = [Query.from_pair(p) for p in fold.test[:9]]
    made, below = [], shared.SharedReader._below
    monkeypatch.setattr(shared.SharedReader, "_below", lambda self, ids, cache: made.append(ids) or below(self, ids, cache))
    found = {}
    for done in (first, second):
        made.clear()
        trained = make("local", adapter=str(done.adapter), device="cpu", **asked)
        found[done.adapter] = np.array([f.probabilities for f in trained.forecast(queries)])
        assert bool(made) == (done is first)
        with monkeypatch.context() as patch:
            patch.setattr(shared, "alike", lambda decoder: False)
            merged = make("local", adapter=str(done.adapter), device="cpu", **asked).forecast(queries)
        np.testing.assert_allclose(found[done.adapter], [f.probabilities for f in merged], atol=1e-5)
    assert np.abs(found[first.adapter] - found[second.adapter]).max() > 1e-3


def test_prompts_too_short_for_the_sources_are_refused_with_what_would_do(options, fold, tmp_path):
    with pytest.raises(TrainingError, match=r"train\.max_tokens=200: .* raise max_tokens by at least"):
        run(options(max_tokens=200), fold, tmp_path)


def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(UnknownNameError, match="unknown reward 'brie'"):
        options(reward="brie")
    with pytest.raises(UnknownNameError, match="unknown way to learn 'ppo'"):
        options(learn="ppo")
    for name, value in (("epochs", 0), ("batch", 0), ("learning_rate", math.nan), ("warmup", 1.0), ("layers", 0)):
        with pytest.raises(SchemaError, match=name):
            options(**{name: value})
    with pytest.raises(SchemaError, match="it takes 2 or more"):
        options(learn="sampled", samples=1)
