"""Runs inside a sandboxed child: compiles the Triton kernels a candidate launches to PTX, without a GPU and without a launch.

``kfs.bench.compile`` sends this file's text followed by ``start(...)``, which imports the candidate. A call of
``capture_launches(*inputs)`` then calls the candidate's function as a caller with a GPU would: a driver that only names the
architecture stands in for CUDA, tensors say that they lie on a GPU, every launch is specialised by Triton's own rules, compiled
as far as PTX, and not executed. Tensors have shapes and no contents (torch's ``meta`` device); a candidate that reads values is
called once more with zeros on the CPU. Autotuned kernels take their first configuration. Bytes in one tensor come back.

It must import nothing of kfs: the child cannot read the checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import types

import torch

MAX_LAUNCHES = 4096
MAX_KERNELS = 64
_ALIGNED = 1 << 40  # what data_ptr() answers for a tensor without an offset
_LIKE = {torch.empty_like: torch.empty, torch.zeros_like: torch.zeros, torch.ones_like: torch.ones}
"""The same without torch's decompositions for ``meta``, whose import takes longer than compiling."""
_state: dict = {}


class _OnGpu(torch.overrides.TorchFunctionMode):
    """Tensors say they lie on cuda:0; whatever is asked for there is made on ``device`` instead."""

    def __init__(self, device: str):
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        tensor = torch.Tensor
        if func == tensor.is_cuda.__get__:
            return True
        if func == tensor.device.__get__:
            return torch.device("cuda", 0)
        if func == tensor.get_device:
            return 0
        if func == tensor.data_ptr:
            return _ALIGNED + args[0].storage_offset() * args[0].element_size()
        if func in (tensor.cuda, tensor.record_stream):
            return args[0]
        if func in _LIKE and not args[1:] and set(kwargs or ()) <= {"dtype"} and args[0].is_contiguous():
            dtype = (kwargs or {}).get("dtype") or args[0].dtype
            return _LIKE[func](args[0].shape, dtype=dtype, device=self._device)
        kwargs = {k: self._moved(v) for k, v in (kwargs or {}).items() if k != "pin_memory"}
        return func(*map(self._moved, args), **kwargs)

    def _moved(self, value):
        is_gpu = (isinstance(value, torch.device) and value.type == "cuda") or (isinstance(value, str) and value[:4] == "cuda")
        return self._device if is_gpu else value


class _Driver:
    """Says which GPU there would be; owns none."""

    def __init__(self, target, properties: dict):
        self._target, self.utils = target, types.SimpleNamespace(get_device_properties=lambda device: dict(properties))

    def get_current_target(self):
        return self._target

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device=0):
        return 0

    def get_device_capability(self, device=0):
        return divmod(self._target.arch, 10)

    def get_active_torch_device(self):
        return torch.device("cuda", 0)

    def get_device_interface(self):
        return torch.cuda


def start(source: str, entry: str, capability: int, ptx_version: int, properties: dict) -> None:
    """Put the stand-ins in place and import the candidate."""
    folder = os.getcwd()
    os.environ.update(TMPDIR=folder, HOME=folder, TRITON_HOME=folder, TRITON_CACHE_DIR=os.path.join(folder, "triton"))
    tempfile.tempdir = folder
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import compiler as backend
    from triton.runtime import autotuner, cache, driver, jit

    driver.set_active(_Driver(GPUTarget("cuda", capability, 32), properties))
    cache.triton_key = lambda: "one process, one version"  # else the hash of all of Triton's files
    backend.get_ptxas_version = lambda arch=80: "none"  # the assembler runs elsewhere
    backend.get_ptx_version_from_options = lambda options, arch: options.ptx_version or ptx_version
    backend.CUDABackend.make_cubin = lambda self, src, metadata, opt, capability: src.encode()
    compile_launch = jit.JITFunction.run

    def run(self, *args, grid, warmup, **kwargs):
        kernel = compile_launch(self, *args, grid=grid, warmup=True, **kwargs)
        if not warmup:
            _note(self, kernel, grid, args, kwargs)
        return kernel

    def first_configuration(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config = self.configs[0]
        if self.early_config_prune:
            config = self.early_config_prune(self.configs, self.nargs, **kwargs)[0]
        _state["tuned"] = max(_state["tuned"], len(self.configs))
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    jit.JITFunction.run = run
    autotuner.Autotuner.run = first_configuration
    said = types.SimpleNamespace(
        **properties, multi_processor_count=properties["multiprocessor_count"], major=capability // 10, minor=capability % 10
    )
    torch.cuda.get_device_properties = lambda device=None: said
    torch.cuda.get_device_capability = lambda device=None: divmod(capability, 10)
    torch.cuda.current_device = lambda: 0
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.device = torch.cuda.device_of = lambda device: contextlib.nullcontext()
    path = os.path.join(folder, "kernel.py")
    with open(path, "w") as file:
        file.write(source)
    module = types.ModuleType("kernel")
    module.__file__ = path
    sys.modules["kernel"] = module
    _reset()
    with _OnGpu("meta"):
        exec(compile(source, path, "exec"), module.__dict__)
    _state["function"] = getattr(module, entry, None)
    if not callable(_state["function"]):
        raise AttributeError(f"the source defines no function {entry!r}")


def _reset() -> None:
    _state.update(kernels={}, launches=0, tuned=0)


def _note(function, kernel, grid, args, kwargs) -> None:
    """Remember one launch: its PTX once, its grid, how often."""
    if callable(grid):
        defaults = {p.name: p.default for p in function.params if p.has_default}
        grid = grid({**defaults, **dict(zip(function.arg_names, args, strict=False)), **kwargs})
    grid = [int(n) for n in (grid if isinstance(grid, (tuple, list)) else (grid,))]
    _state["launches"] += 1
    if _state["launches"] > MAX_LAUNCHES:
        raise RuntimeError(f"more than {MAX_LAUNCHES} launches in one call")
    found = _state["kernels"].get(kernel.hash)
    if found is not None:
        found["launches"] += 1
        return
    if len(_state["kernels"]) >= MAX_KERNELS:
        raise RuntimeError(f"more than {MAX_KERNELS} different kernels in one call")
    metadata = kernel.metadata
    _state["kernels"][kernel.hash] = {
        "name": metadata.name,
        "ptx": kernel.asm["ptx"],
        "grid": grid + [1] * (3 - len(grid)),
        "warps": metadata.num_warps,
        "shared": metadata.shared,
        "fuse": metadata.enable_fp_fusion,
        "launches": 1,
    }


def capture_launches(*inputs, nbytes: int = 0):
    """Call the candidate; one uint8 tensor of ``nbytes``: length of the JSON text that follows it."""
    failures = []
    for device in ("meta", "cpu"):
        _reset()
        on_meta = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in inputs]
        try:
            with _OnGpu(device):
                _state["function"](*(on_meta if device == "meta" else inputs))
            break
        except Exception as error:
            failures.append(error)
            if type(error).__module__.startswith("triton."):  # a compiler's verdict does not depend on values
                raise
    else:
        raise failures[0 if isinstance(failures[1], torch.OutOfMemoryError) else 1]
    answer = {"kernels": list(_state["kernels"].values()), "tuned": _state["tuned"], "zeros": bool(failures)}
    text = json.dumps(answer).encode()
    if len(text) + 8 > nbytes:
        raise RuntimeError(f"{len(text)} bytes of PTX in one call; at most {nbytes - 8}")
    frame = len(text).to_bytes(8, "little") + text
    result = torch.zeros(nbytes, dtype=torch.uint8)
    result[: len(frame)] = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
    return result
