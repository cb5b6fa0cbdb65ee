"""Near-duplicate groups and the split that respects them."""

from collections import Counter

import pytest

from kfs.data.duplicates import near_duplicate_groups, similarity, sizes_for, split_groups

MATMUL = "import torch\ndef f(a, b):\n    return torch.matmul(a, b)\nM = {}\nN = 16\n"
POOL = "import torch\nclass P:\n    def forward(self, x):\n        return torch.nn.functional.avg_pool2d(x, self.k, self.s)\n"


def test_sources_that_differ_in_numbers_alone_are_the_same():
    assert similarity([MATMUL.format(16), MATMUL.format(4096)])[0, 1] == 1.0


def test_groups_join_near_duplicates_and_keep_others_apart():
    sources = {"a": MATMUL.format(1), "b": POOL, "c": MATMUL.format(2)}
    assert near_duplicate_groups(sources) == {"a": "a", "b": "b", "c": "a"}


def test_groups_are_chains_of_near_duplicates():
    words = [f"w{i}" for i in range(40)]
    sources = {str(k): " ".join(words[k : k + 34]) for k in range(5)}
    assert similarity(list(sources.values()))[0, 4] < 0.8
    assert set(near_duplicate_groups(sources, threshold=0.9).values()) == {"0"}


@pytest.mark.parametrize("n", [1, 2, 7, 12, 250, 251])
def test_sizes_sum_to_the_number_of_problems(n):
    assert sum(sizes_for(n).values()) == n


def test_no_group_straddles_splits_and_sizes_are_exact(rng):
    groups = {f"p{i}": f"g{int(g)}" for i, g in enumerate(rng.integers(0, 120, 250))}
    strata = {p: i % 3 for i, p in enumerate(groups)}
    splits = split_groups(groups, strata)
    assert Counter(splits.values()) == sizes_for(250)
    assert len({(groups[p], s) for p, s in splits.items()}) == len(set(groups.values()))


def test_strata_are_spread_evenly_where_groups_are_single():
    groups = {f"p{i}": f"p{i}" for i in range(250)}
    strata = {p: "even" if i % 2 else "odd" for i, p in enumerate(groups)}
    splits = split_groups(groups, strata)
    counts = Counter((strata[p], s) for p, s in splits.items())
    assert counts["even", "train"] == counts["odd", "train"] == 75 and counts["even", "test"] == 30


def test_a_group_larger_than_every_split_is_an_error():
    with pytest.raises(ValueError, match="has 10 problems, more than any split has room for"):
        split_groups({f"p{i}": "one" for i in range(10)}, {f"p{i}": 0 for i in range(10)})
