"""Runs NVRTC in a process that can be killed: ``python -P -m kfs.bench.nvrtc_worker``, one compilation, no device.

The source is a stranger's text. It may include any file the process can read, so all but the compiler's own folders are closed
(Landlock, where the system has it) before the source is read, and it may make the compiler run or grow without end, so the caller
sets a deadline and the process a limit of memory. Standard input: JSON with source, options, folders and memory. Standard output:
a frame of lengths, then the compiler's log and the binary, as bytes; the caller trusts neither.
"""

from __future__ import annotations

import json
import struct
import sys

FRAME = struct.Struct("<4sIQQ")  # magic, NVRTC's result, log bytes, binary bytes
MAGIC = b"nvrt"
MAX_LOG = 1 << 20


def main() -> None:
    """Compile what standard input holds."""
    request = json.load(sys.stdin)
    from cuda.bindings import nvrtc

    from kfs.bench.confine import confine

    nvrtc.nvrtcVersion()  # loads the library while its files can be found
    confine(writable=[], readable=request["folders"], memory_bytes=request["memory_bytes"], program=None)
    _, program = nvrtc.nvrtcCreateProgram(request["source"].encode(), b"kernel.cu", 0, [], [])
    options = [o.encode() for o in request["options"]]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0\n ")
    log = log[:MAX_LOG] if int(result) else log[-MAX_LOG:]  # the first error, or the assembler's report
    binary = b"" if int(result) else _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    sys.stdout.buffer.write(FRAME.pack(MAGIC, int(result), len(log), len(binary)) + log + binary)


def _read(program, size, read) -> bytes:
    status, n = size(program)
    buffer = bytes(n)
    return buffer if not int(status) and n and not int(read(program, buffer)[0]) else b""


if __name__ == "__main__":
    main()
