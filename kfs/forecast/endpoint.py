"""A language model behind an OpenAI-compatible address: a vLLM server of one's own, or a hosted API.

Calls run side by side, those that share a prefix one after the other at the same address. What fails on the way (429, 5xx, a
broken or late reply) is tried again with back-off and is never an answer; what still fails is reported at the end, when every
other call is done and kept. Prices are the user's to state: an unknown one is None, and then no spending can be capped.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, ClassVar, Literal

from kfs.errors import EndpointError, KfsError, MissingDependencyError, SchemaError, unknown_name
from kfs.forecast.answer import Answer, Call
from kfs.forecast.language import Done, LanguageModel
from kfs.forecast.prompt import answer_schema, answer_tool, guessed_tokens
from kfs.records import content_id
from kfs.speedup import N_BINS

STRUCTURES = ("schema", "tool", "text")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_LONGEST_RETRY_AFTER_S = 300.0
_LISTING_S = 20.0
_TOP = 20
_SPARE_TOKENS = 64
_HOPELESS = 3
"""Times the concurrency: so many calls given up before any was answered end the run."""


@dataclass
class Endpoint(LanguageModel):
    """Bin probabilities stated by, or read out of, a served model."""

    base_url: str = ""
    """One address ending in /v1, or several divided by commas; default the environment's OPENAI_BASE_URL."""
    model: str = ""
    """Default: the first one the server lists."""
    revision: str = ""
    """Anything that tells this model from an earlier one of the same name; part of the key its answers are kept by."""
    structure: Literal["schema", "tool", "text"] = "schema"
    """How a verbal answer is asked for: JSON held to a schema by the server, a tool call, or in the prompt alone."""
    opening: str = "Bin: "
    """How a readout begins; ``Bin:`` where the tokeniser keeps a space and the digit after it together. The server must go on
    with a message that was begun, as vLLM does."""
    max_tokens: int | None = None
    """Longest prompt; by default what the server says its context leaves, else without limit."""
    seeded: bool = False
    """Send the number of the repeat as the seed. vLLM on a CPU ends with an error when it is sent one."""
    concurrency: int = 8
    """Calls in flight at each address."""
    deadline_s: float = 300.0
    """For one try of a call, whatever the server does."""
    tries: int = 8
    usd_per_million_input: float | None = None
    usd_per_million_output: float | None = None
    max_usd: float | None = None
    """Start no call that could take a run's spending beyond it."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; a server that asks for none needs none."""

    name: ClassVar[str] = "endpoint"

    def __post_init__(self):
        super().__post_init__()
        if self.structure not in STRUCTURES:
            raise unknown_name("structure of forecaster 'endpoint'", self.structure, STRUCTURES, "kfs/forecast/endpoint.py")
        if self.concurrency < 1 or self.tries < 1 or not 0 < self.deadline_s < math.inf:
            raise SchemaError("forecaster 'endpoint': need concurrency >= 1, tries >= 1 and a finite deadline_s above 0")
        if self.max_usd is not None and None in (self.usd_per_million_input, self.usd_per_million_output):
            raise SchemaError(
                "forecaster 'endpoint': max_usd caps what prices are known for; give usd_per_million_input and ..._output"
            )
        self.tally = Tally(self)
        """What the last run asked, got and paid."""

    def model_id(self) -> str:
        """The served model's name and the revision stated; the address does not count."""
        return content_id("endpoint", self._model, self.revision)

    def sampling(self) -> dict[str, Any]:
        """What of the options decides an answer beside the prompt."""
        own = {"structure": self.structure} if self.form == "verbal" else {"top": _TOP, "opening": self.opening}
        return super().sampling() | own | ({"seeded": True} if self.seeded else {})

    def room(self) -> int | None:
        """Tokens a prompt may have."""
        if self.max_tokens is not None:
            return self.max_tokens
        context = next((m["context"] for m in self._served if m["id"] == self._model), None)
        return None if context is None else context - self._most_output - _SPARE_TOKENS

    def ask(self, calls: Sequence[Call], done: Done) -> None:
        """Answer calls side by side.

        Raises
        ------
        EndpointError
            When every call that can be answered has been: says how many were not and why, or that spending reached its cap.
        """
        self.tally = Tally(self)
        _run(self._ask_all(list(calls), done))

    def spent(self) -> str:
        """Tokens, money and retries so far."""
        return self.tally.words()

    @property
    def addresses(self) -> list[str]:
        """Base URLs, in order.

        Raises
        ------
        EndpointError
            If none is given.
        """
        given = self.base_url or os.environ.get("OPENAI_BASE_URL", "")
        if found := [a.strip().rstrip("/") for a in given.split(",") if a.strip()]:
            return found
        raise EndpointError("forecaster 'endpoint' has no address; give base_url=http://HOST:PORT/v1 or set OPENAI_BASE_URL")

    @property
    def _most_output(self) -> int:
        return self.max_output_tokens if self.form == "verbal" else 1

    @property
    def _key(self) -> str:
        return os.environ.get(self.api_key_variable) or "none"

    @cached_property
    def _served(self) -> list[dict[str, Any]]:
        """Models the first address lists, with their context where it says; empty where a model is named and there is no list."""
        openai = _openai()
        address = self.addresses[0]
        try:
            with openai.OpenAI(base_url=address, api_key=self._key, max_retries=2, timeout=_LISTING_S) as client:
                return [{"id": m.id, "context": (m.model_extra or {}).get("max_model_len")} for m in client.models.list()]
        except (openai.APIError, ValueError, TypeError, AttributeError) as error:
            if self.model:
                return []
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise EndpointError(
                f"{address} lists no models ({why}); start the server, mend base_url, or name the model"
            ) from error

    @cached_property
    def _model(self) -> str:
        if self.model:
            return self.model
        if not self._served:
            raise EndpointError(f"{self.addresses[0]} serves no model; give model=NAME")
        return self._served[0]["id"]

    async def _ask_all(self, calls: list[Call], done: Done) -> None:
        openai = _openai()
        clients = [
            openai.AsyncOpenAI(base_url=a, api_key=self._key, max_retries=0, timeout=self.deadline_s) for a in self.addresses
        ]
        queues: list[asyncio.Queue[Call]] = [asyncio.Queue() for _ in clients]
        groups: dict[tuple[str, str], int] = {}
        for call in sorted(calls, key=lambda c: (c.prompt.system, c.prompt.shared, c.repeat)):
            prefix = (call.prompt.system, call.prompt.shared)  # its calls go to one address, whose cache then holds it
            queues[groups.setdefault(prefix, len(groups) % len(clients))].put_nowait(call)

        async def work(client, queue: asyncio.Queue[Call]) -> None:
            while not queue.empty() and not self.tally.over:
                call = queue.get_nowait()
                if not await self.tally.reserve(call):
                    return
                try:
                    answer = await self._answered(client, call)
                except _GaveUp as error:
                    self.tally.gave_up(call, str(error))
                else:
                    self.tally.got(call, answer)
                    done(call, answer)

        try:
            async with asyncio.TaskGroup() as group:
                for client, queue in zip(clients, queues, strict=True):
                    for _ in range(self.concurrency):
                        group.create_task(work(client, queue))
        except* KfsError as errors:  # of the cache, for example
            raise errors.exceptions[0] from None
        finally:
            for client in clients:
                await client.close()
        self.tally.report(len(calls))

    async def _answered(self, client, call: Call) -> Answer:
        """One call with its retries."""
        openai = _openai()
        why = ""
        for attempt in range(self.tries):
            begin, wait = time.perf_counter(), None
            try:
                response = await asyncio.wait_for(client.chat.completions.create(**self._request(call)), self.deadline_s)
                return self._read(response, time.perf_counter() - begin)
            except (TimeoutError, openai.APITimeoutError):
                why = f"no whole reply within {self.deadline_s:g} s"
                self.tally.late(call)
            except openai.APIStatusError as error:
                why, wait = f"HTTP {error.status_code}: {_short(error)}", _retry_after(error.response.headers)
                if error.status_code < 500 and error.status_code not in (408, 409, 425, 429):
                    raise _GaveUp(why) from error
            except (openai.APIError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                why = f"{type(error).__name__}: {_short(error)}"
            if attempt + 1 == self.tries or self.tally.over:
                break
            self.tally.retries += 1
            back_off = min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * random.uniform(0.5, 1.0)
            await asyncio.sleep(back_off if wait is None else min(wait, _LONGEST_RETRY_AFTER_S))
        raise _GaveUp(f"{why} (tried {attempt + 1} times)")

    def _request(self, call: Call) -> dict[str, Any]:
        request = {"model": self._model, "messages": call.prompt.messages} | ({"seed": call.repeat} if self.seeded else {})
        if self.form == "readout":
            opening = {"role": "assistant", "content": self.opening}
            how = {"continue_final_message": True, "add_generation_prompt": False}
            return request | {
                "messages": [*call.prompt.messages, opening],
                "max_tokens": 1,
                "temperature": 0,
                "logprobs": True,
                "top_logprobs": _TOP,
                "extra_body": how,
            }
        request |= {"temperature": self.temperature, "max_tokens": self.max_output_tokens}
        if self.structure == "schema":
            shape = {"name": "forecast", "schema": answer_schema(), "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        if self.structure == "tool":
            request |= {"tools": [answer_tool()], "tool_choice": "required"}
        return request

    def _read(self, response, elapsed_s: float) -> Answer:
        """What came back, as it came. Raises what a broken reply raises."""
        (choice, *_), usage = response.choices, response.usage
        said = choice.message
        common = {
            "input_tokens": usage.prompt_tokens if usage else None,
            "output_tokens": usage.completion_tokens if usage else None,
            "cached_tokens": usage.prompt_tokens_details.cached_tokens if usage and usage.prompt_tokens_details else None,
            "elapsed_s": elapsed_s,
            "finish_reason": choice.finish_reason or "",
        }
        if self.form == "readout":
            rows, notes = _bin_logs(choice.logprobs.content[0].top_logprobs)
            return Answer(log_probabilities=rows, notes=notes, **common)
        text = said.content if isinstance(said.content, str) else ""
        arguments = tuple(c.function.arguments for c in said.tool_calls or () if isinstance(c.function.arguments, str))
        extra = said.model_extra or {}
        thought = next((v for k in ("reasoning_content", "reasoning") if isinstance(v := extra.get(k), str)), "")
        return Answer(text, arguments, thought, **common)


class Tally:
    """What a run asked, got and paid, and whether it must end."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self.answered = self.retries = self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.usd: float | None = 0.0
        """Spent so far; None where no price is known."""
        self.over = ""
        """Why no further call is started; empty while some are."""
        self._reserved = 0.0
        self._failures: Counter[str] = Counter()
        if None in (endpoint.usd_per_million_input, endpoint.usd_per_million_output):
            self.usd = None

    async def reserve(self, call: Call) -> bool:
        """Set aside what a call may cost at most; False, and the end of the run, where the cap does not allow it."""
        cap, most = self._endpoint.max_usd, self._most(call)
        while cap is not None and not self.over and self.usd + self._reserved + most > cap:
            if self.usd + most > cap:
                self.over = f"spending reached its cap: {self.usd:.4g} of {cap:g} USD, and a call may cost {most:.4g}"
            else:
                await asyncio.sleep(0.02)  # those in flight may cost less than they may cost at most
        if self.over:
            return False
        self._reserved += most
        return True

    def got(self, call: Call, answer: Answer) -> None:
        """Count an answer; a server that does not say how many tokens it took is taken to have used all it may."""
        self._reserved -= self._most(call)
        self.answered += 1
        self.input_tokens += answer.input_tokens or 0
        self.output_tokens += answer.output_tokens or 0
        self.cached_tokens += answer.cached_tokens or 0
        if self.usd is not None:
            known = None not in (answer.input_tokens, answer.output_tokens)
            self.usd += self._price(answer.input_tokens, answer.output_tokens) if known else self._most(call)

    def late(self, call: Call) -> None:
        """Count a try that was given up waiting for: it may have to be paid, and the next one too."""
        if self.usd is not None:
            self.usd += self._most(call)
            cap = self._endpoint.max_usd
            if cap is not None and self.usd + self._reserved > cap:
                self.over = f"spending reached its cap: {self.usd:.4g} of {cap:g} USD, late replies counted in full"

    def gave_up(self, call: Call, why: str) -> None:
        """Count a call that has no answer; too many before the first answer end the run."""
        self._reserved -= self._most(call)
        self._failures[why] += 1
        hopeless = _HOPELESS * self._endpoint.concurrency
        if not self.answered and sum(self._failures.values()) >= hopeless:
            self.over = f"the first {hopeless} calls failed"

    def report(self, n: int) -> None:
        """Raise what must be said of ``n`` calls, if anything."""
        if self.answered == n:
            return
        reasons = "; ".join(f"{count} times {why}" for why, count in self._failures.most_common(3))
        why = "; ".join(filter(None, (self.over, reasons)))
        raise EndpointError(f"{self.answered} of {n} calls were answered and are kept: {why}. The same command asks for the rest")

    def words(self) -> str:
        """In short, for a progress bar."""
        parts = (
            f"{self.input_tokens + self.output_tokens} tokens",
            f"{self.usd:.3g} USD" if self.usd is not None else "",
            f"{self.retries} retries" if self.retries else "",
            f"{sum(self._failures.values())} failed" if self._failures else "",
        )
        return ", ".join(filter(None, parts))

    def _price(self, input_tokens: int, output_tokens: int) -> float:
        e = self._endpoint
        return (input_tokens * e.usd_per_million_input + output_tokens * e.usd_per_million_output) / 1e6

    def _most(self, call: Call) -> float:
        """What a call may cost at most, USD; 0 where prices are unknown."""
        return 0.0 if self.usd is None else self._price(guessed_tokens(call.prompt.text), self._endpoint._most_output)


class _GaveUp(Exception):
    """A call that will not be answered in this run."""


def _bin_logs(listed) -> tuple[tuple[float, ...], str]:
    """Log probabilities of the eight numbers among the likeliest tokens; one that is not listed gets half the least listed."""
    found: dict[int, list[float]] = {}
    for token in listed:
        if (text := token.token.strip()) in map(str, range(1, N_BINS + 1)):
            found.setdefault(int(text), []).append(token.logprob)
    least = min((t.logprob for t in listed), default=-50.0) - math.log(2)
    rows = tuple(math.log(sum(map(math.exp, found[b]))) if b in found else least for b in range(1, N_BINS + 1))
    absent = [str(b) for b in range(1, N_BINS + 1) if b not in found]
    return rows, f"not among the {len(listed)} likeliest tokens: {', '.join(absent)}" if absent else ""


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:200] or "broken reply"


def _retry_after(headers) -> float | None:
    """Seconds a server asks to wait, as a number or a date; None where it says nothing that can be read."""
    given = headers.get("retry-after", "")
    try:
        return max(0.0, float(given)) if given else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _openai():
    try:
        import openai
    except ImportError as error:
        raise MissingDependencyError(
            "forecaster 'endpoint' needs the openai client; install it with `pip install -e '.[lm]' -c constraints.txt`"
        ) from error
    return openai


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; beside a loop that runs already, as in Jupyter, in a thread. An interrupt ends the work first."""
    try:
        asyncio.get_running_loop()
        beside = True
    except RuntimeError:
        beside = False
    (_run_beside if beside else asyncio.run)(work)


def _run_beside(work: Coroutine[Any, Any, None]) -> None:
    """Run in a thread with a loop of its own."""
    loop, result = asyncio.new_event_loop(), concurrent.futures.Future()

    def target() -> None:
        asyncio.set_event_loop(loop)
        try:
            result.set_result(loop.run_until_complete(task))
        except BaseException as error:
            result.set_exception(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    task = loop.create_task(work)
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        result.result()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()
