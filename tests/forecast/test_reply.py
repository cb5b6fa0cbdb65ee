"""Reading replies: every form that models answer in, nothing that is no answer, and no text that hurts."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from kfs.forecast.reply import read_reply

sys.path.append(str(Path(__file__).parents[2]))  # tests is a folder of scripts, too: python -m tests.fuzz_reply
from tests import fuzz_reply
from tests.replies import FORMS, NO_ANSWERS, answers, no_answers

P = [0.01, 0.02, 0.05, 0.1, 0.5, 0.2, 0.1, 0.02]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_answer_is_read(form):
    reply = read_reply(FORMS[form](P))
    assert reply.error is None and reply.probabilities == pytest.approx(P)


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_no_text_without_a_distribution_is_read_as_one(kind):
    for i in range(4):
        reply = read_reply(NO_ANSWERS[kind](i))
        assert reply.probabilities is None and reply.error


def test_of_500_labelled_replies_nearly_all_are_read_right_and_of_100_others_none(rng):
    labelled = answers(500, rng)
    found = [(read_reply(text).probabilities, stated) for _, text, stated in labelled]
    right = [p is not None and np.allclose(p, stated) for p, stated in found]
    assert np.mean(right) >= 0.98
    assert not [kind for kind, text in no_answers(100) if read_reply(text).error is None]


def test_the_raw_sum_and_the_stated_bin_are_kept():
    stated = '"predicted_bin": "Bin 6 (significant speedup)", "reason": "why"'
    reply = read_reply(f'{{"probabilities": [0, 0, 0, 0, 40, 20, 0, 0], {stated}}}')
    assert reply.raw_sum == pytest.approx(0.6)
    assert (reply.stated_bin, reply.reason) == (6, "why")
    assert reply.probabilities[4] == pytest.approx(2 / 3)


@pytest.mark.parametrize("stated", [0, 9, 5.5, "12", "unsure", None, True, [5], "5/8"])
def test_a_stated_bin_that_is_none_is_left_out_and_the_distribution_kept(stated):
    reply = read_reply(json.dumps({"probabilities": P, "bin": stated}))
    assert reply.stated_bin is None and reply.probabilities == pytest.approx(P)


def test_a_tool_call_counts_before_the_text_and_the_last_call_before_others():
    first, last = (f'{{"probabilities": {p}}}' for p in (P[::-1], P))
    assert read_reply(f"I would say {first}", [first, last]).probabilities == pytest.approx(P)
    assert read_reply(f"I would say {last}", ["{}"]).probabilities == pytest.approx(P)


def test_a_draft_in_the_reasoning_never_counts():
    draft, final = (f'{{"probabilities": {p}}}' for p in (P[::-1], P))
    assert read_reply(f"<think>{draft}</think>{final}").probabilities == pytest.approx(P)
    assert read_reply(f"<think>{draft}</think>no idea").error
    assert read_reply(f"<think>{draft} and {final}").error == "the reasoning never ended: no answer follows it"


@pytest.mark.parametrize(
    "text",
    ["{" * 100_000, "[{" * 100_000, '{"a":' * 50_000, "a" * 10_000_000, '{"probabilities": [' + "1," * 1_000_000, "1: " * 300_000,
     "```json\n" * 50_000, "<think>" * 100_000, "<|channel|>" * 100_000, "\\" * 1_000_000, '"' * 1_000_000, "{'" * 100_000,
     "| 1 |" * 100_000, "1" * 1_000_000, '{"probabilities": [1e999, 0, 0, 0, 0, 0, 0, 0]}', "{" + " " * 1_000_000,
     "//" * 500_000],
    ids=lambda t: f"{t[:12]!r}_{len(t)}",
)  # fmt: skip
def test_texts_made_to_hang_a_parser_are_no_answers(text):
    assert read_reply(text).error


def test_damaged_replies_never_raise_and_never_give_half_a_distribution(capsys):
    assert fuzz_reply.main(["--n", "2000", "--seed", "7"]) == 0
    assert "0 faults" in capsys.readouterr().out
