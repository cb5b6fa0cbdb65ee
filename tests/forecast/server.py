"""A server that speaks just enough of the chat API over real HTTP, counts what it is asked, and misbehaves on demand.

No model: it answers by a rule. Each request is handed to a behaviour, a function of the handler, the request and its number.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def rule(request: dict) -> list[float]:
    """The distribution this server believes in: decided by the prompt and the seed alone."""
    digest = hashlib.sha256(json.dumps([request["messages"], request.get("seed")]).encode()).digest()
    weights = [1 + byte for byte in digest[:8]]
    return [w / sum(weights) for w in weights]


def message(request: dict) -> dict:
    """The right answer in the form that was asked for."""
    p = rule(request)
    text = json.dumps({"reason": "by rule", "probabilities": p, "bin": p.index(max(p)) + 1})
    if request.get("tools"):
        call = {"id": "1", "type": "function", "function": {"name": "forecast", "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": text}


def completion(said: dict, **choice) -> dict:
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "prompt_tokens_details": {"cached_tokens": 64}}
    first = {"index": 0, "message": said, "finish_reason": "stop"} | choice
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "ruler", "choices": [first], "usage": usage}


def good(handler, request, number):
    handler.give(completion(message(request)))


class Server:
    """Context manager; ``url`` is its address, ``asked`` counts requests by prompt and seed, ``answered`` those answered well."""

    def __init__(self, behave=good, delay_s: float = 0.0, context: int | None = 4096):
        self.behave, self.delay_s, self.context = behave, delay_s, context
        self.asked, self.answered, self.requests = Counter(), Counter(), []
        self.lock, self.in_flight, self.most_in_flight = threading.Lock(), 0, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def give(self, body, status=200, headers=(), raw=None):
                data = json.dumps(body).encode() if raw is None else raw
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                model = {"id": "ruler", "object": "model", "created": 0, "owned_by": "tests"}
                self.give({"object": "list", "data": [model | ({"max_model_len": outer.context} if outer.context else {})]})

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                key = hashlib.sha256(json.dumps([request["messages"], request.get("seed")]).encode()).hexdigest()
                with outer.lock:
                    outer.asked[key] += 1
                    outer.requests.append(request)
                    number = len(outer.requests) - 1
                    outer.in_flight += 1
                    outer.most_in_flight = max(outer.most_in_flight, outer.in_flight)
                try:
                    time.sleep(outer.delay_s)
                    outer.behave(self, request, number)
                    with outer.lock:
                        outer.answered[key] += 1
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with outer.lock:
                        outer.in_flight -= 1

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, client_address):
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
