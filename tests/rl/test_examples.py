import pytest

from kfs.errors import TrainingError
from kfs.pairs import Fold, require_held_out
from kfs.rl.examples import choose, require_pairs, swapped


@pytest.fixture
def pairs(rng, made_up_pairs):
    made = made_up_pairs(rng, 120)
    return [p.model_copy(update={"anchor_code": made[i % 24].anchor_code}) for i, p in enumerate(made)]


def test_chosen_pairs_are_whole_groups_of_a_reference_and_even_over_tasks(pairs):
    chosen = choose(pairs, 40, 4, "train")
    assert 40 <= len(chosen) < 40 + 4 and len({p.comparison_id for p in chosen}) == len(chosen)
    counts = [sum(p.pack == f"pack{i}" for p in chosen) for i in range(4)]
    assert max(counts) - min(counts) <= 4
    groups = {(p.pack, p.hardware, p.anchor_code) for p in chosen}
    assert len(groups) <= 20


def test_all_are_taken_where_fewer_are_there_and_order_is_kept(pairs):
    assert choose(pairs, 1000, 8, "train") == pairs


def test_swapped_candidates_stay_within_task_and_variant_and_are_another_source_where_there_is_one(pairs, rng):
    found = swapped(pairs, rng)
    assert [p.true_bin for p in found] == [p.true_bin for p in pairs]
    assert [p.anchor_code for p in found] == [p.anchor_code for p in pairs]
    for cell in {(p.pack, p.candidate_variant) for p in pairs}:
        rows = [i for i, p in enumerate(pairs) if (p.pack, p.candidate_variant) == cell]
        before = [pairs[i].candidate_code for i in rows]
        assert sorted(before) == sorted(found[i].candidate_code for i in rows)
        most = max(before.count(x) for x in before)
        if 2 * most <= len(before):
            assert all(found[i].candidate_code != pairs[i].candidate_code for i in rows)


def test_a_task_that_was_learnt_from_is_never_judged_on(pairs):
    require_held_out(["pack0"], [p for p in pairs if p.pack == "pack1"], "x")
    with pytest.raises(TrainingError, match=r"x has learnt from 1 of the tasks.*pack1"):
        require_held_out(["pack0", "pack1"], [p for p in pairs if p.pack == "pack1"], "x")
    near = [p.model_copy(update={"group": "pack0"}) for p in pairs if p.pack == "pack1"]
    with pytest.raises(TrainingError, match="pack0"):
        require_held_out(["pack0"], near, "x")


def test_a_fold_without_pairs_or_with_one_bin_is_refused_by_name(pairs):
    of = lambda name: [p for p in pairs if p.pack == name]
    with pytest.raises(TrainingError, match="the calibration split is empty"):
        require_pairs(Fold("f", of("pack0"), [], of("pack2")))
    one = [p for p in of("pack0") if p.true_bin == of("pack0")[0].true_bin]
    with pytest.raises(TrainingError, match=r"all .* training pairs lie in bin"):
        require_pairs(Fold("f", one, of("pack1"), of("pack2")))
