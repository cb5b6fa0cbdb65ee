"""The device code of a Python module that holds CUDA C++ in its strings, made into sources that NVRTC compiles.

PyTorch's ``load_inline`` and CuPy's ``RawKernel`` take such strings. The module is parsed and never run. A string is scanned
once: device functions, types, constants and directives stay; host functions, which need PyTorch's headers, go. What they say
of launches is read first: template arguments (the element type of a dispatch counts as ``float``), threads and dynamic shared
memory where those are constants. A template is instantiated for each launch. Grids depend on inputs and stay unknown.

Not seen: text that only a run could put together (values in f-strings, ``format``), functions of other strings, whether a launch
is reached. Nothing is compiled here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kfs.bench.launch_sites import MAX_LAUNCHES, Launch, Launched, launches_of, summary, template_of
from kfs.errors import KfsError

MARK = "__global__"
MAX_CHARACTERS = 200_000
"""Of a module; the longest of CUDA-L1 has a tenth of it."""
_MAX_UNITS = 16

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*(?:.*?\*/|.*))
  | (?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
  | (?P<word>\w+)
  | (?P<sign><<<|>>>|::|[^\w\s])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
_DEVICE = re.compile(r"\b(?:__global__|__device__|__constant__)")
_TYPE = re.compile(r"(?:template\b.*)?\b(?:struct|class|union|enum|using|typedef)\b", re.DOTALL)
_CONSTANT = re.compile(r"(?:(?:static|inline)\s+)*(?:const|constexpr)\b|static_assert\b")
_CONSTEXPR = re.compile(r"(?:(?:static|inline)\s+)*constexpr\b")
_HOST_ONLY = re.compile(r"\b(?:torch|at|c10|pybind11|py|vector|string|runtime_error|cuda(?:Stream|Event|Error)_t)\b")
_SCOPE = re.compile(r'(?:inline\s+)?namespace\b[\w\s:]*|extern\s*"C"\s*')
_HEADERS = re.compile(
    r"#\s*include\s*[<\"](cuda_fp16\.h|cuda_bf16\.h|mma\.h|cooperative_groups[\w./]*|cub/[\w./]*|curand_kernel\.h)[>\"]"
)

_INTEGERS = """\
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long int64_t; typedef unsigned long uint64_t;
typedef unsigned long uintptr_t; typedef long intptr_t;
"""
SHIM = """\
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#endif
#ifndef FLT_MIN
#define FLT_MIN 1.175494351e-38F
#endif
#ifndef FLT_EPSILON
#define FLT_EPSILON 1.192092896e-07F
#endif
#ifndef DBL_MAX
#define DBL_MAX 1.7976931348623157e+308
#endif
#ifndef INT_MAX
#define INT_MAX 2147483647
#endif
#ifndef INT_MIN
#define INT_MIN (-2147483647 - 1)
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_LOG2E 1.4426950408889634074
#define __builtin_prefetch(...)
namespace std {
template <typename T> __device__ constexpr T min(T a, T b) { return b < a ? b : a; }
template <typename T> __device__ constexpr T max(T a, T b) { return a < b ? b : a; }
template <typename T> struct numeric_limits;
template <> struct numeric_limits<float> {
  __device__ static float max() { return FLT_MAX; }
  __device__ static float min() { return FLT_MIN; }
  __device__ static float lowest() { return -FLT_MAX; }
  __device__ static float infinity() { return INFINITY; }
  __device__ static float epsilon() { return FLT_EPSILON; }
};
template <> struct numeric_limits<double> {
  __device__ static double max() { return DBL_MAX; }
  __device__ static double lowest() { return -DBL_MAX; }
  __device__ static double infinity() { return INFINITY; }
};
template <> struct numeric_limits<int> {
  __device__ static int max() { return INT_MAX; }
  __device__ static int min() { return INT_MIN; }
  __device__ static int lowest() { return INT_MIN; }
};
}
"""
"""The little that kernels use of the host's headers, which NVRTC lacks."""
_HALF = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace c10 { using Half = __half; using BFloat16 = __nv_bfloat16; }
namespace at { using c10::Half; using c10::BFloat16; }
"""


class InlineError(KfsError, ValueError):
    """A Python module whose CUDA C++ cannot be told apart from the rest, with why."""


@dataclass(frozen=True)
class Unit:
    """One source for NVRTC."""

    source: str
    launched: dict[str, Launched] = field(default_factory=dict)
    """By kernel; empty where the text launches none, as where Python does."""


@dataclass
class _Item:
    """A declaration at the top of a text."""

    text: str
    kind: str
    """keep, host or kernel."""


def device_units(source: str) -> list[Unit]:
    """Device code of every string of a Python module that has a kernel.

    Parameters
    ----------
    source : str
        A Python module. It is parsed, never run.

    Returns
    -------
    list of Unit
        One a string, in the order of the text.

    Raises
    ------
    InlineError
        If it holds no kernel, does not parse, or is longer than ``MAX_CHARACTERS``.
    """
    if len(source) > MAX_CHARACTERS:
        raise InlineError(f"{len(source)} characters; at most {MAX_CHARACTERS} are searched for CUDA C++")
    try:
        texts = list(dict.fromkeys(_texts(ast.parse(source))))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InlineError(f"the module does not parse as Python ({type(error).__name__})") from None
    if not any(MARK in text for text in texts):
        raise InlineError(f"no constant string holds a kernel ({MARK})")
    parts = [_items(text) for text in texts[:_MAX_UNITS]]
    launches = [launch for items in parts for launch in _launches(items)][:MAX_LAUNCHES]
    units = [_unit(items, launches) for items in parts if any(i.kind == "kernel" for i in items)]
    if not units:
        raise InlineError(f"no string defines a function that is {MARK}")
    return units


def _texts(tree: ast.Module) -> Iterator[str]:
    """Constant strings with a kernel or a launch, those joined by ``+`` as one."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        text = _constant(node) if isinstance(node, (ast.Constant, ast.BinOp, ast.JoinedStr)) else None
        if text is None and not isinstance(node, ast.JoinedStr):  # its other parts are values that only a run knows
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))
        elif text is not None and (MARK in text or "<<<" in text):
            yield (
                text.replace("\r\n", "\n").replace("\0", " ").encode(errors="replace").decode()
            )  # a literal may hold half a letter


def _constant(node: ast.AST) -> str | None:
    """The text of an expression of string constants; None where a part of it is something else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    parts: list[str | None] = [None]
    if isinstance(node, ast.JoinedStr):
        parts = [_constant(v) for v in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_constant(node.left), _constant(node.right)]
    return None if None in parts else "".join(parts)


def _unit(items: Sequence[_Item], launches: Sequence[Launch]) -> Unit:
    kept = []
    for item in items:
        if item.kind == "host":
            continue
        kept.append(item.text)
        if item.kind == "kernel" and (template := template_of(item.text)) is not None:
            kept += template.instances([w for w in launches if w.name == template.name])
    headers = [text for text in kept if _HEADERS.match(text)]
    code = "\n".join(text for text in kept if text not in headers)
    integers = "#include <cuda/std/cstdint>\n" if headers else _INTEGERS  # which other headers bring too
    shims = ["\n".join([*headers, integers + SHIM])]
    if re.search(r"\b(?:__?half2?|half2?|Half|BFloat16|__nv_bfloat16)\b", code):
        shims.append(_HALF)
    launched = {name: summary(name, [w for w in launches if w.name == name]) for name in sorted({w.name for w in launches})}
    return Unit("".join(shims) + code + "\n", launched)


def _launches(items: Sequence[_Item]) -> Iterator[Launch]:
    constants = [i.text for i in items if i.kind == "keep"]
    return launches_of([i.text for i in items if i.kind == "host"], constants)


# Declarations


def _items(text: str) -> list[_Item]:
    """Split a text at its top level into what NVRTC is given and host code."""
    items: list[_Item] = []
    parts: list[str] = []
    closers: list[str] = []
    function, scopes, end = None, 0, 0  # whether the braces of this item are a function's body; None before the first
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        gap, end = text[end : match.start()], match.end()
        if kind == "comment":
            parts += [" "] if parts else []
        elif kind == "directive" and not parts:
            items += _directive(token.strip())
        elif token == "}" and scopes and not parts:
            items.append(_Item("}", "keep"))
            scopes -= 1
        elif token == "{" and not closers and function is None and _SCOPE.fullmatch("".join(parts)):
            items.append(_Item("".join(parts) + " {", "keep"))
            parts, scopes = [], scopes + 1
        else:
            parts += ([gap] if parts else []) + ([f"\n{token}\n"] if kind == "directive" else [token])
            if token == "{" and not closers and function is None:
                function = _is_function("".join(parts[:-1]).strip())
            if token in _OPEN:
                closers.append(_OPEN[token])
            elif token in _CLOSE and (not closers or closers.pop() != token):
                raise InlineError("brackets of its CUDA C++ do not match")
            if not closers and (token == ";" or (token == "}" and function)):
                items.append(_item("".join(parts)))
                parts, function = [], None
    if closers or scopes:
        raise InlineError("brackets of its CUDA C++ do not match")
    return items


def _directive(text: str) -> list[_Item]:
    """Directives stay, but for headers of the host; those of libraries for the device stay too."""
    wanted = not re.match(r"#\s*include\b", text) or _HEADERS.match(text)
    return [_Item(text, "keep")] if wanted else []


def _is_function(head: str) -> bool:
    """Whether what stands before a brace opens the body of a function, not of a type or an initialiser."""
    if "(" in head:
        return "=" not in _outside(head)
    return not (_TYPE.match(head) or "=" in head)


def _outside(text: str) -> str:
    """Text outside parentheses and template brackets, and not part of ``operator``."""
    kept, depth = [], 0
    for match in re.finditer(r"operator\s*[=<>!+*/-]+|[(<]|[)>]|[^()<>]", text):
        token = match.group()
        if token in "(<":
            depth += 1
        elif token in ")>":
            depth -= 1
        elif not depth and not token.startswith("operator"):
            kept.append(token)
    return "".join(kept)


def _item(text: str) -> _Item:
    is_function = text.endswith("}")
    head = text.partition("{")[0] if is_function else text
    if MARK in head and is_function:
        return _Item(text, "kernel")
    if _DEVICE.search(head):
        return _Item(text, "keep")
    if is_function and _CONSTEXPR.match(head):  # may be called on the device
        return _Item(f"__host__ __device__ {text}", "keep")
    own = not is_function and (_TYPE.match(text) or _CONSTANT.match(text)) and not _HOST_ONLY.search(text)
    return _Item(text, "keep" if own else "host")
