"""The endpoint against a real server: vLLM on a CPU, serving SmolLM2. ``make test-server`` builds its environment and runs this.

The tests named smoke take about two minutes together, most of it the server's start.
"""

import os
import threading
import time
from dataclasses import replace

import pytest

from kfs.errors import DataError, EndpointError
from kfs.forecast import make
from kfs.forecast.query import Query
from kfs.tasks import load_task
from tests.server.vllm_server import CONTEXT, VllmServer

PYTHON = os.environ.get("KFS_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="needs vLLM's own environment: make test-server"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from kfs.forecast.smollm2 import converted_smollm2

    try:
        folder = converted_smollm2()
    except DataError as error:
        pytest.skip(f"SmolLM2 is not here: {error}")
    started = VllmServer(PYTHON, folder, tmp_path_factory.mktemp("vllm") / "server.log")
    try:
        started.start()
        yield started
    finally:
        started.kill()
        lines = [line for line in started.log.read_text().splitlines() if "Prefix cache hit rate" in line]
        print("\n".join(["what vLLM logged of its prefix cache:", *lines[-5:]]))


@pytest.fixture(scope="module")
def queries():
    """Eight candidates of one reference."""
    task = load_task("softmax")
    kernels = [k for k in task.kernels("host") if len(k.source) < 1500][:8]
    common = {"pack": "softmax", "hardware": "h100", "title": task.title, "signature": task.signature}
    return [
        Query(comparison_id=k.kernel_id, anchor_code=task.reference.source, candidate_code=k.source, **common) for k in kernels
    ]


def unreadable(forecasts):
    """Failures other than a distribution in the right form whose sum is out of range: a model this small cannot add."""
    return [f.parse_error for f in forecasts if f.parse_failed and not f.parse_error.startswith("the probabilities sum to")]


def endpoint(server, **options):
    return make("endpoint", base_url=server.url, **{"max_output_tokens": 700, "concurrency": 8, **options})


def test_smoke_eight_concurrent_verbal_answers_all_keep_to_the_schema_and_share_their_prefix(server, queries):
    hits, asked = server.metric("prefix_cache_hits_total"), server.metric("prefix_cache_queries_total")
    model = endpoint(server)
    forecasts = model.forecast(queries)
    assert not unreadable(forecasts)
    assert all(f.output_tokens > 20 and f.elapsed_s > 0 for f in forecasts)
    hits, asked = server.metric("prefix_cache_hits_total") - hits, server.metric("prefix_cache_queries_total") - asked
    print(f"prefix cache: {hits:.0f} of {asked:.0f} prompt tokens hit")
    assert hits > 0.3 * asked


def test_smoke_a_readout_is_that_of_the_same_weights_in_this_process(server, queries):
    served = endpoint(server, form="readout", cases=False, hardware=False, max_tokens=1500).forecast(queries[:3])
    local = make("local", device="cpu", max_tokens=3000).forecast(queries[:3])
    for a, b in zip(served, local, strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=2e-2)
        assert a.raw_probability_sum == pytest.approx(b.raw_probability_sum, abs=2e-2)
        assert abs(a.input_tokens - b.input_tokens) <= 1


def test_a_forced_tool_call_keeps_to_its_schema_and_is_read(server, queries):
    assert not unreadable(endpoint(server, structure="tool").forecast(queries[:2]))


def test_plain_text_of_a_small_model_is_read_or_counted_as_no_answer(server, queries):
    forecasts = endpoint(server, structure="text", max_output_tokens=200).forecast(queries[:4])
    assert all(f.parse_failed == bool(f.parse_error) for f in forecasts)


def test_a_prompt_too_long_for_the_context_is_cut_to_it_and_one_forced_on_it_is_reported(server, queries):
    long = replace(queries[0], candidate_code="x = torch.exp(x - x.max(-1, keepdim=True).values)\n" * 2000)
    (f,) = endpoint(server, form="readout").forecast([long])
    assert "candidate cut by" in f.reasoning and f.input_tokens <= CONTEXT
    with pytest.raises(EndpointError, match=r"0 of 1 calls were answered.*HTTP 400"):
        endpoint(server, form="readout", max_tokens=10**6).forecast([long])


def test_repeats_are_answers_of_their_own(server, queries):
    once, thrice = (endpoint(server, repeats=n).forecast(queries[:1])[0] for n in (1, 3))
    assert thrice.input_tokens == 3 * once.input_tokens and thrice.output_tokens > once.output_tokens
    assert not unreadable([thrice])


def test_a_server_that_is_killed_and_started_again_costs_time_and_nothing_else(server, queries):
    model, found = endpoint(server, tries=60, deadline_s=120, revision="restart"), []
    asking = threading.Thread(target=lambda: found.extend(model.forecast(queries)))
    asking.start()
    time.sleep(3)  # all eight are in flight
    server.kill()
    time.sleep(2)
    server.start()
    asking.join()
    assert len(found) == 8 and not unreadable(found) and model.tally.retries > 0
