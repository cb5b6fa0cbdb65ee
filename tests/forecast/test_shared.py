"""Sharing prefixes and keeping what is frozen change no number and no gradient. The model is random; its arithmetic is real."""

import copy

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from kfs.forecast.local import Local  # noqa: E402
from kfs.forecast.query import Query  # noqa: E402
from kfs.forecast.shared import Frozen, SharedReader, grouped  # noqa: E402


@pytest.fixture
def local(small_random_model):
    return Local(model=str(small_random_model), max_tokens=3000, device="cpu")


@pytest.fixture
def prompts(local, rng, made_up_pairs):
    pairs = made_up_pairs(rng, 7)
    pairs = [p.model_copy(update={"anchor_code": pairs[i % 2].anchor_code, "hardware": "h100"}) for i, p in enumerate(pairs)]
    return [local.parts(local.prompt(Query.from_pair(p))) for p in pairs]


def adapted(model, layers):
    """The model with adapters on its last layers that already do something."""
    torch.manual_seed(1)
    n = len(model.get_decoder().layers)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj"], layers_to_transform=list(range(n - layers, n)))
    made = peft.get_peft_model(copy.deepcopy(model), config)
    for name, p in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.3)
    return made


def test_groups_hold_every_prompt_once_under_what_it_shares(prompts):
    groups = grouped(prompts)
    assert len(groups) == 2 and sorted(i for _, rows in groups for i in rows) == list(range(7))
    for group, rows in groups:
        assert [(group.system, group.shared, c) for c in group.candidates] == [prompts[i] for i in rows]


@pytest.mark.parametrize("layers", [1, 2])
def test_shared_logits_are_those_of_whole_prompts(local, prompts, layers):
    model = adapted(local.load(), layers)
    reader = SharedReader(model.get_base_model(), layers)
    with torch.no_grad():
        whole = reader.whole(prompts)
    for group, rows in grouped(prompts):
        torch.testing.assert_close(reader.logits(group), whole[rows], atol=1e-4, rtol=1e-4)


def test_whole_prompts_are_read_as_the_uncut_model_reads_them(local, prompts):
    model = adapted(local.load(), 1)
    with torch.no_grad():
        plain = torch.cat([model(torch.tensor([[t for part in p for t in part]])).logits[:, -1] for p in prompts])
        whole = SharedReader(model.get_base_model(), 1).whole(prompts)
    torch.testing.assert_close(whole, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_shared_gradients_are_those_of_whole_prompts(local, prompts, layers):
    model = adapted(local.load(), layers)
    reader = SharedReader(model.get_base_model(), layers)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    weigh = lambda logits, rows: (logits[:, :5].softmax(-1) * torch.arange(5.0)).sum(-1) @ torch.tensor([1.0 + i for i in rows])
    weigh(reader.whole(prompts), range(len(prompts))).backward()
    expected = {n: p.grad.clone() for n, p in trained.items()}
    model.zero_grad()
    groups = grouped(prompts)
    rows = {id(group): rows for group, rows in groups}
    for group, logits in reader.steps([group for group, _ in groups]):
        weigh(logits, rows[id(group)]).backward()
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-3
    for name, p in trained.items():
        torch.testing.assert_close(p.grad, expected[name], atol=1e-4, rtol=1e-3)


def test_what_frozen_layers_made_is_kept_on_disk_and_read_by_the_next_reader(local, prompts, tmp_path):
    (group, _), *_ = grouped(prompts)
    base = local.load()
    first = SharedReader(base, 1, frozen=Frozen(tmp_path), identity="a model").logits(group)
    again = SharedReader(base, 1, frozen=Frozen(tmp_path), identity="a model")
    again._below = None  # it would be called for anything that is not kept
    torch.testing.assert_close(again.logits(group), first, atol=0, rtol=0)
    with pytest.raises(TypeError):
        other = SharedReader(base, 1, frozen=Frozen(tmp_path), identity="another model")
        other._below = None
        other.logits(group)


def test_layers_that_are_not_there_are_refused(local):
    with pytest.raises(ValueError, match="the model has 2 layers"):
        SharedReader(local.load(), 3)
