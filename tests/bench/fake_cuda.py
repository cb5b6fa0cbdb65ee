"""FakeCuda: a stand-in for a child's GPU that runs on CPU tensors and writes down what was asked of it.

It says nothing about CUDA. It lets tests run the child's engine, its protocol and the judge's side on a machine without a GPU.
``install`` puts it into a zygote, whose children then believe in it.
"""

import inspect
import time
import types

import torch


class FakeCuda:
    """The methods of ``kfs.bench.gpu_child.Gpu``."""

    arch = "sm_90"
    driver = None

    def __init__(self, buffer=None):
        self.torch, self.device, self.log = torch, torch.device("cpu"), []
        self.events = [0, 0]

    def use_stream(self):
        self.log.append("use_stream")

    def flush(self):
        self.log.append("flush")

    def sync(self):
        self.log.append("sync")

    def record(self, which):
        self.log.append(f"record {which}")
        self.events[which] = time.perf_counter_ns()

    def between_ns(self):
        return max(self.events[1] - self.events[0], 1)

    def pending_error(self):
        return 0

    def empty(self, nbytes):
        return torch.empty(nbytes, dtype=torch.uint8)

    def capture(self, run):
        self.log.append("capture")
        run()
        made = inspect.getclosurevars(run).nonlocals["made"]
        saved = [[y.clone() for y in outputs] for outputs in made]

        def replay():
            self.log.append("replay")
            for outputs, values in zip(made, saved, strict=True):
                for y, value in zip(outputs, values, strict=True):
                    y.copy_(value)

        return types.SimpleNamespace(replay=replay)


def install():
    """Replace the GPU of every child that is forked from this process."""
    from kfs.bench import gpu_child

    gpu_child.Gpu = FakeCuda
    facts = {"major": 9, "minor": 0, "multi_processor_count": 1, "total_memory": 1 << 30, "L2_cache_size": 1 << 20}
    torch.cuda.get_device_properties = lambda i: types.SimpleNamespace(name="NVIDIA FakeCuda", **facts)
