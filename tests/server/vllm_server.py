"""vLLM on this CPU, in an environment of its own: started for tests and benchmarks, killed after them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

READY_S = 300
CONTEXT = 4096


class VllmServer:
    """``python`` has vLLM, ``folder`` a model; ``url`` is the address of the chat API. ``start`` waits until it answers."""

    def __init__(self, python: str, folder: Path, log: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.python, self.folder, self.log, self.process = python, folder, log, None
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def start(self):
        words = [self.python, "-m", "vllm.entrypoints.openai.api_server"]
        words += ["--model", str(self.folder), "--served-model-name", "smollm2"]
        words += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(CONTEXT), "--max-num-seqs", "8"]
        words += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
        words += ["--enable-prefix-caching", "--host", "127.0.0.1", "--port", str(self.port), "--max-logprobs", "20"]
        own = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_SERVER_DEV_MODE": "1"}
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=os.environ | own, start_new_session=True)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended:\n{self.log.read_text()[-3000:]}"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2)
                return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(f"the server is not ready after {READY_S} s:\n{self.log.read_text()[-3000:]}")

    def kill(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def forget_prefixes(self):
        """Empty its prefix cache."""
        url = f"http://127.0.0.1:{self.port}/reset_prefix_cache"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=10)

    def metric(self, name: str) -> float:
        """Sum of one of the counters it shows."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10).read().decode()
        return sum(float(v) for v in re.findall(rf"^vllm:{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))
