import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("openai")

from kfs.errors import EndpointError, SchemaError, UnknownNameError
from kfs.forecast import endpoint as module
from kfs.forecast import make
from kfs.forecast.cache import AnswerCache
from kfs.forecast.query import Query

from .server import Server, completion, good, message, rule


@pytest.fixture
def queries(rng, made_up_pairs):
    pairs = made_up_pairs(rng, 12)
    return [Query.from_pair(p.model_copy(update={"anchor_code": pairs[i % 3].anchor_code})) for i, p in enumerate(pairs)]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_WAIT_S", 0.01)


def asking(server, **options):
    return make("endpoint", base_url=server.url, **{"max_output_tokens": 500, "seeded": True, **options})


def believed(server, forecasts, queries, forecaster):
    """Whether every forecast is what the server's rule says of its prompt."""
    for f, q in zip(forecasts, queries, strict=True):
        p = rule({"messages": forecaster.prompt(q).messages, "seed": 0})
        assert f.probabilities == pytest.approx(np.array(p), abs=1e-9) and f.comparison_id == q.comparison_id


@pytest.mark.parametrize("structure", ["schema", "tool", "text"])
def test_every_structure_asks_for_its_answer_and_reads_it(queries, structure):
    with Server() as server:
        forecaster = asking(server, structure=structure)
        believed(server, forecaster.forecast(queries), queries, forecaster)
        asked = server.requests[0]
    assert asked["model"] == "ruler" and asked["max_tokens"] == 500
    assert ("response_format" in asked, "tools" in asked) == (structure == "schema", structure == "tool")


def test_tokens_money_and_time_are_accounted_for(queries):
    with Server() as server:
        forecaster = asking(server, usd_per_million_input=10.0, usd_per_million_output=100.0)
        forecasts = forecaster.forecast(queries)
        assert forecaster.tally.usd == pytest.approx(12 * (100 * 10 + 50 * 100) / 1e6)
        assert forecaster.tally.cached_tokens == 12 * 64
        unpriced = asking(server)
        unpriced.forecast(queries)
    assert unpriced.tally.usd is None
    assert all((f.input_tokens, f.output_tokens) == (100, 50) and f.elapsed_s > 0 for f in forecasts)


def test_calls_run_side_by_side_up_to_the_concurrency(queries):
    with Server(delay_s=0.1) as server:
        asking(server, concurrency=4).forecast(queries)
        assert server.most_in_flight == 4


def test_candidates_of_one_reference_come_together_and_to_one_of_several_addresses(queries):
    with Server() as a, Server() as b:
        forecaster = make("endpoint", base_url=f"{a.url},{b.url}/", concurrency=1)
        forecaster.forecast(queries)
        shared = [[r["messages"][1]["content"].split("Candidate kernel")[0] for r in s.requests] for s in (a, b)]
    assert sum(map(len, shared)) == 12 and not set(shared[0]) & set(shared[1])
    for order in shared:
        assert len(list(itertools.groupby(order))) - 1 == len(set(order)) - 1


def test_repeats_have_seeds_of_their_own_and_are_pooled(queries):
    with Server() as server:
        forecaster = asking(server, repeats=3)
        (f,) = forecaster.forecast(queries[:1])
        messages = forecaster.prompt(queries[0]).messages
        assert sorted(r["seed"] for r in server.requests) == [0, 1, 2]
    each = [rule({"messages": messages, "seed": s}) for s in range(3)]
    assert f.probabilities == pytest.approx(np.mean(each, axis=0), abs=1e-9)
    assert f.input_tokens == 300 and "pooled from 3 of 3" in f.reasoning


def test_a_readout_is_read_from_log_probabilities_and_what_is_not_listed_is_said(queries):
    def behave(handler, request, number):
        listed = [{"token": f" {b}", "logprob": float(np.log(b / 40)), "bytes": None} for b in range(1, 8)]
        listed.append({"token": "the", "logprob": float(np.log(0.001)), "bytes": None})
        content = [{**listed[0], "top_logprobs": listed}]
        handler.give(completion({"role": "assistant", "content": " 1"}, logprobs={"content": content}))

    with Server(behave) as server:
        (f,) = asking(server, form="readout").forecast(queries[:1])
        asked = server.requests[0]
    assert asked["messages"][-1] == {"role": "assistant", "content": "Bin: "} and asked["continue_final_message"]
    assert f.probabilities[:7] == pytest.approx(np.arange(1, 8) / 40 / (28 / 40 + 0.0005))
    assert f.raw_probability_sum == pytest.approx(28 / 40 + 0.0005)
    assert f.reasoning.endswith("not among the 8 likeliest tokens: 8")


def fault_status(status, headers=()):
    return lambda handler, request, number: handler.give({"error": {"message": "not now"}}, status, headers)


def half_a_body(handler, request, number):
    data = json.dumps(completion(message(request))).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.close()


def slow_drip(handler, request, number):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(600):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def no_json(handler, request, number):
    handler.give(None, raw=b"<html>Bad gateway</html>")


def no_choices(handler, request, number):
    handler.give(completion(message(request)) | {"choices": []})


def other_json(handler, request, number):
    handler.give({"hello": [1, 2, {"choices": 3}]})


FAULTS = {
    "429 with Retry-After": fault_status(429, [("Retry-After", "0.05")]),
    "429 with a date": fault_status(429, [("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")]),
    "429 with nonsense": fault_status(429, [("Retry-After", "soon")]),
    "500": fault_status(500),
    "503": fault_status(503),
    "half a body": half_a_body,
    "slow drip": slow_drip,
    "no JSON": no_json,
    "other JSON": other_json,
    "empty choices": no_choices,
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_on_the_way_is_tried_again_and_is_no_answer(queries, name, tmp_path):
    failing = set()

    def behave(handler, request, number):
        key = json.dumps(request["messages"])
        if key in failing:
            return good(handler, request, number)
        failing.add(key)
        return FAULTS[name](handler, request, number)

    with Server(behave) as server:
        forecaster = asking(server, deadline_s=0.6 if name == "slow drip" else 20.0)
        cache = AnswerCache(tmp_path / "answers.sqlite")
        believed(server, forecaster.forecast(queries[:4], cache=cache), queries[:4], forecaster)
        assert forecaster.tally.retries == 4 and len(cache) == 4
        cache.close()


def test_retry_after_is_waited_for(queries):
    def behave(handler, request, number):
        return FAULTS["429 with Retry-After"](handler, request, number) if number == 0 else good(handler, request, number)

    with Server(behave) as server:
        begin = time.monotonic()
        asking(server).forecast(queries[:1])
        assert time.monotonic() - begin >= 0.05 and len(server.requests) == 2


def bad_tool_arguments(handler, request, number):
    call = {"id": "1", "type": "function", "function": {"name": "forecast", "arguments": '{"probabilities": [0.5, 0.5'}}
    handler.give(completion({"role": "assistant", "content": None, "tool_calls": [call]}))


def refusal(handler, request, number):
    handler.give(completion({"role": "assistant", "content": "I cannot compare these kernels."}))


def ten_megabytes(handler, request, number):
    handler.give(completion({"role": "assistant", "content": "thinking... {" * 800_000}, finish_reason="length"))


@pytest.mark.parametrize("behave", [bad_tool_arguments, refusal, ten_megabytes])
def test_a_reply_without_a_distribution_is_a_counted_failure_and_is_kept(queries, behave, tmp_path):
    with Server(behave) as server:
        cache = AnswerCache(tmp_path / "answers.sqlite")
        for _ in range(2):
            (f,) = asking(server, structure="tool").forecast(queries[:1], cache=cache)
            assert f.parse_failed and f.parse_error
        assert len(server.requests) == 1  # paid once
        cache.close()
    if behave is ten_megabytes:
        assert f.parse_error.endswith("(the answer reached its length limit)")


def test_a_call_the_server_refuses_is_reported_when_all_others_are_done_and_kept(queries, tmp_path):
    def behave(handler, request, number):
        if queries[5].candidate_code.strip() in request["messages"][1]["content"].split("Candidate kernel")[1]:
            return handler.give({"error": {"message": "this model's maximum context length is 10 tokens"}}, 400)
        return good(handler, request, number)

    cache = AnswerCache(tmp_path / "answers.sqlite")
    with Server(behave) as server:
        forecaster = asking(server)
        with pytest.raises(EndpointError, match=r"1\d? of 12 calls were answered and are kept: .*maximum context length"):
            forecaster.forecast(queries, cache=cache)
        kept = len(cache)
        assert kept == forecaster.tally.answered > 8
        server.behave, before = good, len(server.requests)
        forecaster.forecast(queries, cache=cache)
        assert len(server.requests) - before == 12 - kept
    cache.close()


def test_no_call_is_started_that_could_break_the_spending_cap(queries):
    prices = {"usd_per_million_input": 10.0, "usd_per_million_output": 100.0}
    with Server() as server:
        forecaster = asking(server, max_usd=0.2, **prices)  # a call takes 0.006, and at most some 0.06
        with pytest.raises(EndpointError, match=r"of 12 calls were answered.*spending reached its cap"):
            asking(server, max_usd=0.1, **prices).forecast(queries)
        forecaster.forecast(queries)
    assert forecaster.tally.usd <= 0.2
    with pytest.raises(SchemaError, match="max_usd caps what prices are known for"):
        make("endpoint", max_usd=1.0)


def test_late_replies_are_not_tried_again_beyond_the_spending_cap(queries):
    prices = {"usd_per_million_input": 10.0, "usd_per_million_output": 100.0}
    with Server(slow_drip) as server:
        forecaster = asking(server, max_usd=0.15, deadline_s=0.3, **prices)  # a try may cost some 0.06
        with pytest.raises(EndpointError, match=r"0 of 1 calls were answered.*late replies counted in full"):
            forecaster.forecast(queries[:1])
        assert len(server.requests) <= 2 and forecaster.tally.usd <= 0.15


def test_a_server_that_answers_nothing_ends_the_run_early(queries):
    with Server(fault_status(401)) as server:
        with pytest.raises(EndpointError, match=r"0 of 12 calls were answered.*first 6 calls failed.*HTTP 401"):
            asking(server, concurrency=2).forecast(queries)
        assert len(server.requests) <= 7


def test_no_address_and_no_server_say_what_to_do(queries, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(EndpointError, match="give base_url="):
        make("endpoint").forecast(queries[:1])
    with pytest.raises(EndpointError, match="lists no models"):
        make("endpoint", base_url="http://127.0.0.1:9/v1").forecast(queries[:1])
    with pytest.raises(UnknownNameError, match="known: schema, text, tool"):
        make("endpoint", structure="xml")


def test_a_prompt_fits_the_context_the_server_states(queries):
    long = replace(queries[0], anchor_code="x = 1\n" * 4000, candidate_code="y = 2\n" * 4000)
    with Server(context=3000) as server:
        (f,) = asking(server).forecast([long])
        text = "".join(m["content"] for m in server.requests[0]["messages"])
    assert len(text.encode()) / 3 <= 3000 - 500
    assert "reference cut by" in f.reasoning and "candidate cut by" in f.reasoning


def test_a_running_event_loop_as_in_jupyter_is_no_hindrance(queries):
    async def cell():
        return asking(server).forecast(queries[:2])

    with Server() as server:
        assert len(asyncio.run(cell())) == 2


def test_what_is_kept_is_found_again_whatever_the_address_and_not_for_another_model_or_sampling(queries, tmp_path):
    cache = AnswerCache(tmp_path / "answers.sqlite")
    with Server() as a, Server() as b:
        first = asking(a).forecast(queries, cache=cache)
        assert asking(b).forecast(queries, cache=cache) == first and not b.requests
        for other in ({"revision": "2"}, {"temperature": 0.0}, {"max_output_tokens": 501}, {"model": "x"}, {"cases": False}):
            before = len(b.requests)
            asking(b, **other).forecast(queries[:1], cache=cache)
            assert (len(b.requests) > before) == (other != {"cases": False})  # these queries have no cases to leave out
    cache.close()


DRIVER = """
import sys
from pathlib import Path
from kfs.forecast import make
from kfs.forecast.cache import AnswerCache
from kfs.forecast.query import Query
queries = [
    Query(f"c{i}", "p", "h100", "", "", f"def kernel(x): return x + {i // 25}", f"def kernel(x): return {i} * x")
    for i in range(250)
]
forecaster = make("endpoint", base_url=sys.argv[1], repeats=2, concurrency=8, seeded=True)
found = forecaster.forecast(queries, cache=AnswerCache(sys.argv[2]))
Path(sys.argv[3]).write_text("\\n".join(f.model_dump_json(exclude={"elapsed_s"}) for f in found))
"""


def test_500_answers_killed_five_times_are_each_paid_once_but_for_those_in_flight(tmp_path):
    def run(name, server, wait_s=None):
        already = len(server.requests)
        arguments = [server.url, str(tmp_path / f"{name}.sqlite"), str(tmp_path / f"{name}.jsonl")]
        process = subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], stderr=subprocess.DEVNULL)
        if wait_s is None:
            assert process.wait() == 0
            return
        while len(server.requests) == already:
            time.sleep(0.01)
        time.sleep(wait_s)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    rng = random.Random(5)
    with Server(delay_s=0.02) as whole, Server(delay_s=0.02) as broken:
        run("whole", whole)
        for _ in range(5):
            run("broken", broken, rng.uniform(0.0, 0.25))
        run("broken", broken)
        assert len(whole.asked) == len(broken.asked) == 500 and set(whole.asked.values()) == {1}
        assert 0 < sum(broken.asked.values()) - 500 <= 5 * 8  # eight in flight at each kill
        assert broken.asked.keys() == whole.asked.keys()
    assert (tmp_path / "whole.jsonl").read_text() == (tmp_path / "broken.jsonl").read_text()
