import json
from dataclasses import fields, replace

import pytest

from kfs.forecast.context import Context, context_of
from kfs.forecast.prompt import Example, PromptOptions, answer_schema, answer_tool, build, guessed_tokens
from kfs.forecast.query import Query
from kfs.forecast.reply import read_reply
from kfs.speedup import STUDY_BINS
from kfs.tasks import load_task

ASKED = {"cases": True, "hardware": True, "light": False, "facts": False}


@pytest.fixture
def query():
    task = load_task("softmax")
    sources = {
        "anchor_code": "def kernel(x):\n    return x.softmax(-1)\n",
        "candidate_code": "def kernel(x):\n    return x + 1\n",
    }
    return Query(
        "c", "softmax", "h100", task.title, task.signature, **sources, anchor_variant="VARIANT", candidate_variant="VARIANT"
    )


def test_the_shared_part_is_the_same_for_all_candidates_of_a_reference(query):
    context = context_of(query, **ASKED)
    a, b = (build(q, context=context) for q in (query, replace(query, candidate_code="def kernel(y): ...")))
    assert (a.system, a.shared) == (b.system, b.shared) and a.candidate != b.candidate
    assert query.anchor_code.strip() in a.shared and query.candidate_code.strip() in a.candidate
    assert "".join(m["content"] for m in a.messages) == a.system + a.shared + a.candidate


@pytest.mark.parametrize("form", ["verbal", "readout"])
def test_a_prompt_tells_bins_task_cases_and_hardware_and_no_variant(query, form):
    text = build(query, PromptOptions(form=form), context=context_of(query, **ASKED)).text
    for row in STUDY_BINS.table():
        assert f"{row['bin']}: {row['interval']} ({row['name']})" in text
    assert "rows 4096, cols 4096" in text and "rows 1024, cols 32768; inputs heavy tailed" in text
    assert "NVIDIA H100 SXM5 80GB (sm_90): 132 multiprocessors" in text and "3350 GB/s" in text
    assert query.title in text and query.signature in text and "VARIANT" not in text
    assert ("JSON object" in text) == (form == "verbal")


def test_the_speed_of_light_is_told_only_where_it_is_asked_for(query):
    told = build(query, context=context_of(query, **ASKED | {"light": True})).text
    assert "rows 4096, cols 4096; no kernel can take less than 40.1 us" in told  # 134 MB at 3350 GB/s
    assert "no kernel can take" not in build(query, context=context_of(query, **ASKED)).text


def test_a_host_is_told_its_own_cases_and_that_one_core_is_used(query):
    from kfs.pairs import host_folder

    context = context_of(replace(query, hardware=host_folder().name), **ASKED)
    assert context.cases[0] == "rows 256, cols 1024" and "one thread of one core" in context.hardware


def test_compiler_facts_stand_beside_the_source_they_are_of(query):
    pytest.importorskip("cuda.core")
    task = load_task("softmax")
    first, second = [k for k in task.kernels("cuda") if k.language == "cuda"][:2]
    cuda = replace(query, language="cuda", anchor_code=first.source, candidate_code=second.source)
    context = context_of(cuda, **ASKED | {"facts": True})
    prompt = build(cuda, context=context)
    for part in (prompt.shared, prompt.candidate):
        assert "The compiler says of it: Compiled for sm_90" in part and "registers a thread" in part
    assert (
        "compiler" not in build(query, context=context_of(query, **ASKED | {"facts": True})).text
    )  # plain Python is not compiled


def test_a_task_of_ones_own_gives_its_cases(query):
    own = replace(query, pack="my_task")
    assert context_of(own, **ASKED).cases == ()
    assert context_of(own, **ASKED, task=load_task("rmsnorm")).cases


def test_a_diff_stands_in_for_the_candidate(query):
    long = replace(query, anchor_code="a = 1\n" * 50 + "b = 2\n", candidate_code="a = 1\n" * 50 + "b = 3\n")
    prompt = build(long, PromptOptions(diff=True))
    assert "-b = 2\n+b = 3" in prompt.candidate and prompt.candidate.count("a = 1") == 2


def test_examples_are_shown_before_the_question_as_many_as_asked_for(query):
    examples = [Example("T", f"reference{i}", f"candidate{i}", 1.7) for i in range(3)]
    prompt = build(query, PromptOptions(examples=2), examples=examples)
    assert (
        "Measured speedup S = 1.70: bin 6" in prompt.shared and "candidate1" in prompt.shared and "candidate2" not in prompt.text
    )
    assert "reference1" not in build(query, examples=examples).text


def test_what_does_not_fit_is_cut_visibly_and_recorded(query):
    long = replace(query, candidate_code="\n".join(f"x{i} = {i}" for i in range(3000)))
    whole = build(long)
    assert whole.cut == {} and whole.notes == ""
    cut = build(long, room=1500)
    assert sum(map(guessed_tokens, (cut.system, cut.shared, cut.candidate))) <= 1500
    lost = cut.cut["candidate"]
    assert f"[cut: {lost} characters]" in cut.candidate and cut.notes == f"candidate cut by {lost} characters"
    assert "x0 = 0\n" in cut.candidate and "x2999 = 2999" in cut.candidate and query.anchor_code.strip() in cut.shared


def test_too_little_room_says_how_much_more_is_needed(query):
    long = replace(query, candidate_code="y = 1\n" * 500)
    with pytest.raises(ValueError, match=r"raise max_tokens by at least (\d+)") as error:
        build(long, room=100)
    more = int(str(error.value).rsplit(" ", 1)[1])
    assert build(long, room=100 + more).cut


def test_sources_are_text_and_never_templates(query):
    hostile = replace(query, candidate_code="{{ 7 * 7 }}{% for x in y %}{% endraw %}{# gone #}")
    assert hostile.candidate_code in build(hostile).candidate


def test_the_schema_of_an_answer_is_bounded_and_its_answers_are_read():
    schema = answer_schema()
    assert schema == answer_tool()["function"]["parameters"]
    p = [0, 0, 0, 0.25, 0.5, 0.25, 0, 0]
    reply = read_reply(json.dumps({"reason": "r", "probabilities": p, "bin": 5}))
    assert reply.probabilities == tuple(p) and (reply.stated_bin, reply.reason) == (5, "r")
    assert schema["properties"]["probabilities"]["minItems"] == schema["properties"]["probabilities"]["maxItems"] == 8
    assert schema["properties"]["reason"]["maxLength"] and not schema["additionalProperties"]


def test_every_option_changes_the_prompt_of_a_question_it_applies_to(query):
    base = build(query, context=context_of(query, **ASKED)).text
    assert {f.name for f in fields(PromptOptions)} == {"form", "cases", "hardware", "light", "facts", "diff", "examples"}
    for name in ("cases", "hardware"):
        assert build(query, context=context_of(query, **ASKED | {name: False})).text != base
    assert build(query, context=Context()).text != base


def test_examples_that_leave_too_little_room_are_left_out_and_counted(query):
    examples = [Example("T", "x = 1\n" * 40, f"candidate{i}", 1.7) for i in range(3)]
    whole = build(query, PromptOptions(examples=3), examples=examples, count=len)
    bare = build(query, count=len)
    room = len(bare.text) + 400
    cut_short = build(query, PromptOptions(examples=3), examples=examples, count=len, room=room)
    assert 0 < cut_short.dropped <= 3 and f"{cut_short.dropped} examples left out" in cut_short.notes
    assert len(cut_short.system + cut_short.shared + cut_short.candidate) <= room
    roomy = build(query, PromptOptions(examples=3), examples=examples, count=len, room=len(whole.text) + 1)
    assert roomy.dropped == 0 and roomy.shared == whole.shared
