"""What a compiled GPU binary consists of: instruction mix, code size, parameters, and what the assembler said about it.

Instructions are counted as they stand in the code, not as often as they run. Classes are those of NVIDIA's "CUDA Binary
Utilities" instruction tables for compute capability 8.0 to 12.0.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass

from kfs.errors import HarnessError

CLASSES = (
    *("tensor", "fp32", "half", "fp64", "special", "convert", "integer", "move"),
    *("load_global", "store_global", "load_shared", "store_shared", "load_local", "store_local", "load_constant"),
    *("atomic", "shuffle", "barrier", "branch", "other"),
)
"""Instruction classes; ``convert`` changes number formats, ``load_local`` and ``store_local`` are spills and indexed arrays.

Tensor memory counts as shared.
"""

_EXACT = {
    "special": "MUFU",
    "load_global": "LD LDG LDGSTS UBLKCP UBLKPF UTMALDG UTMAPF TEX TLD TLD4",
    "store_global": "ST STG UTMASTG",
    "load_shared": "LDS LDSM LDSL LDTM",
    "store_shared": "STS STSM STAS STTM",
    "load_local": "LDL",
    "store_local": "STL",
    "load_constant": "LDC LDCU ULDC",
    "atomic": "ATOM ATOMG ATOMS RED REDG REDS REDAS UTMAREDG UBLKRED SUATOM SURED",
    "shuffle": "SHFL REDUX CREDUX VOTE VOTEU MATCH UVOTE",
    "barrier": (
        "BAR MEMBAR DEPBAR LDGDEPBAR SYNCS ARRIVES ERRBAR CCTL FENCE WARPGROUP WARPGROUPSET UCGABAR_ARV UCGABAR_WAIT "
        "UTMACMDFLUSH UTMACCTL ACQBULK UTCBAR LDTCBAR"
    ),
    "branch": (
        "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BSSY BSYNC BREAK BMOV WARPSYNC YIELD NANOSLEEP KILL BPT RTT PREEXIT "
        "ELECT ENDCOLLECTIVE"
    ),
    "move": "MOV MOVM UMOV SEL USEL PRMT UPRMT R2UR S2R S2UR CS2R CS2UR R2P P2R UP2UR PLOP3 UPLOP3 R2B B2R FSEL",
}
_CLASS = {opcode: name for name, opcodes in _EXACT.items() for opcode in opcodes.split()}
_PATTERNS = (
    ("tensor", r"([HIDBQO]|U?[HIQB]G|UTC[HIQO])MMA"),
    ("convert", r"[FI]2[FI].*|I2FP|F2FP|I2IP|FRND|UF2.*|UI2.*"),
    ("half", r"U?H(ADD|FMA|MUL|MNMX|SET|SETP)\d*(_.*)?"),
    ("fp64", r"D(ADD|FMA|MUL|MNMX|SETP)"),
    ("fp32", r"U?F(ADD|FMA|MUL|MNMX|SET|SETP|CHK|SWZADD)\d*(I?)"),
    ("integer", r"U?(I|L|SH|BM|BREV|FLO|POPC|VI|LEA|SGXT|VABS|QSPC).*"),
)
_COMPILED = [(name, re.compile(pattern)) for name, pattern in _PATTERNS]


@dataclass(frozen=True)
class Code:
    """One function of a binary."""

    mix: dict[str, int]
    """Instructions by class; padding is left out."""
    code_bytes: int


@dataclass(frozen=True)
class Resources:
    """What the assembler reports for one entry (``ptxas -v``)."""

    registers: int
    shared_bytes: int
    """Static shared memory."""
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def instruction_class(opcode: str) -> str:
    """Class of an instruction.

    Examples
    --------
    >>> [instruction_class(o) for o in ("HFMA2.MMA", "HMMA.16816.F32", "LDG.E.128", "IMAD.MOV.U32")]
    ['half', 'tensor', 'load_global', 'move']
    """
    if opcode.startswith("IMAD.MOV"):
        return "move"
    base = opcode.partition(".")[0]
    if base in _CLASS:
        return _CLASS[base]
    return next((name for name, pattern in _COMPILED if pattern.fullmatch(base)), "other")


def read_disassembly(text: str) -> dict[str, Code]:
    """Functions of a binary, from the output of ``nvdisasm -json``.

    Raises
    ------
    HarnessError
        If the text is not that.
    """
    try:
        functions = {}
        for function in json.loads(text)[1]:
            mix = dict.fromkeys(CLASSES, 0)
            for instruction in function["sass-instructions"]:
                opcode = instruction["opcode"]
                if opcode.startswith("HFMA2") and ",-RZ,RZ," in instruction.get("operands", ""):
                    mix["move"] += 1  # how a constant is put into a register
                elif opcode != "NOP":
                    mix[instruction_class(opcode)] += 1
            functions[function["function-name"]] = Code(mix, function["length"])
        return functions
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise HarnessError(f"nvdisasm -json gave something else than expected: {error!r}") from error


_ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def read_resources(log: str) -> dict[str, Resources]:
    """Resources of every entry, from what ``ptxas -v`` writes.

    A source can have the compiler print such lines, too (``#pragma message``), but only before the assembler runs: of two reports
    on an entry the last one counts, and an incomplete one does not.
    """
    found = {}
    parts = _ENTRY.split(log)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        stack, registers = _STACK.search(text), re.search(r"Used (\d+) registers", text)
        if stack is None or registers is None:
            continue
        shared = re.search(r"(\d+) bytes smem", text)
        found[name] = Resources(int(registers[1]), int(shared[1]) if shared else 0, *map(int, stack.groups()))
    return found


def parameter_sizes(cubin: bytes, entry: str) -> list[int] | None:
    """Sizes in bytes of an entry's parameters, in order; None where the binary does not say.

    Read from the section ``.nv.info.<entry>`` of the ELF file: attribute 0x17 (KPARAM_INFO) holds ordinal and size.
    """
    try:
        section = _section(cubin, f".nv.info.{entry}")
        sizes, at = {}, 0
        while section is not None and at + 4 <= len(section):
            form, attribute, size = struct.unpack_from("<BBH", section, at)
            at += 4
            if form != 4:  # the value itself
                continue
            if attribute == 0x17:
                _, ordinal, _, word = struct.unpack_from("<IHHI", section, at)
                sizes[ordinal] = word >> 18
            at += size
        complete = section is not None and sorted(sizes) == list(range(len(sizes)))
        return [sizes[i] for i in sorted(sizes)] if complete else None
    except (struct.error, ValueError):
        return None


def _section(elf: bytes, name: str) -> bytes | None:
    """One section of a little-endian 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    width, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + width * i) for i in range(count)]
    strings = headers[names][4]
    for offset, _, _, _, at, size in headers:
        end = elf.index(b"\0", strings + offset)
        if elf[strings + offset : end] == name.encode():
            return elf[at : at + size]
    return None
