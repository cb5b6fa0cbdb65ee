"""Take out of a kernel's source what tells where it came from: comments, docstrings, marker names, stray layout.

A forecaster must judge code by what it does. Generated kernels announce themselves: "optimized" in comments and docstrings,
``use_custom_kernel`` and ``fast_gelu`` in names, ``ModelNew`` alone says which side of a comparison a source stands on. Such
claims are taken out of names, the same everywhere in a source, Python and C++, and out of the prose of its messages. Cleaning
keeps every statement, every name that says what is computed (``fused_bias_relu``) or belongs to a library
(``torch.cuda.graph``, ``use_fast_math``) and all layout that is not stray; it does not reformat or change behaviour, and
cleaning twice gives what cleaning once gives.

Python comments go by a small scanner that knows strings; C++ comments go from inside the string literals that hold C++ (and
there only, so that ``//`` in a URL or in a floor division is safe).
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import keyword
import math
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"""(?:(?<!\w)[rRbBuUfF]{1,2})?(?P<quote>"{3}|'{3}|"|')|(?P<comment>\#[^\n]*)""")
_STRING_END = {
    quote: re.compile(rf"(?:\\.|(?!{quote})[^\\{'' if len(quote) == 3 else chr(92) + 'n'}])*(?:{quote})?", re.DOTALL)
    for quote in ('"', "'", '"""', "'''")
}
_CPP_TOKEN = re.compile(
    r"""
    (?P<keep>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')
  | (?<![ \t])[ \t]*(?P<line>//[^\n]*)
  | (?P<block>/\*.*?\*/)
    """,
    re.VERBOSE | re.DOTALL,
)
_CPP_SIGNS = re.compile(r'#include\b|#define\b|#pragma\b|\b__global__\b|\b__device__\b|\btorch::Tensor\b|\bextern\s+"C"')
_MARKER_CLASS = "ModelNew"
_NEUTRAL_CLASS = "Model"
_DISPLACED_CLASS = "InnerModel"
_CLAIMS = (
    "optimi[sz]ed",
    "unoptimi[sz]ed",
    "improved",
    "enhanced",
    "accelerated",
    "advanced",
    "custom(?:i[sz]ed)?",
    "fast(?:er|est)?",
    "efficient(?:ly)?",
)
"""What generated kernels say of themselves, as patterns in lower case."""
_MARKER = re.compile(
    rf"""
    _?(?<![^\W\d_])(?:{"|".join(_CLAIMS)})(?=_|$|[A-Z0-9])                      # use_custom_kernel, fastGelu
  | _?(?:{"|".join(c[0].upper() + c[1:] for c in _CLAIMS)})(?=_|$|[A-Z0-9])      # CustomLayer, ModelOptimized
  | _?(?<![^\W\d_])(?:{"|".join(c.upper() for c in _CLAIMS)})(?=_|$|\d)        # FAST_EXP
  | _opt(?=_|$) | ^opt_(?!level)
    """,
    re.VERBOSE,
)
_PRIVATE_MARKER = re.compile(rf"{_MARKER.pattern}| _?[Oo]ptimi[sz](?:e|ing|ations?)(?=_|$|[A-Z0-9])", re.VERBOSE)
_LIBRARY_NAME = re.compile(
    r"""
    __\w+__                                                                  # reserved by the language or the compiler
  | (?i:_*(?:(?:use|allow|enable|disable)_*)?fast_?math_*)                    # a compiler's flag
  | fast_(?:sin|cos|sincos|tan|tanh|exp|exp10|log|log2|log10|pow|divide)f     # CUDA's libdevice
  | CUBLAS_\w+ | CUSPARSE_\w+ | CUDNN_\w+ | FastDivmod\w* | OpMultiplyAdd\w+
  | Fast(?:er)?RCNN\w* | EfficientNet\w* | \w+TokenizerFast | use_fast | fast_mode | use_fast_accum
  | custom_(?:op|fwd|bwd|jvp|vjp|gradient|from_mask) | _custom_ops? | CustomOp(?:Def)? | CustomClassHolder | CustomFromMask
  | (?:enable_)?mem_efficient(?:_sdp(?:_enabled)?)? | memory_efficient_attention\w* | EFFICIENT_ATTENTION
  | can_use_efficient_attention | _efficient_attention_\w+ | _scaled_dot_product_efficient_attention\w*
  | (?:device|dtype|layout|memory_format|pinned_memory|requires_grad)_opt | optimi[sz]ed_execution
  | OptimizedModule | choose_qparams_optimized | _?last_executed_optimized_graph
  | _get_graph_executor_optimize | _set_graph_executor_optimize | _jit_pass_optimize_\w+
    """,
    re.VERBOSE,
)
"""Names of libraries that look like markers; they do work, so they stay."""
_WORD = re.compile(r"\\.|\w+")
"""A word, or an escape such as the ``\\n`` that would otherwise be the first letter of one."""
_TAKEN = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | frozenset(f"{n}{f}" for n in dir(math) for f in ("", "f"))
_CPP_TAKEN = frozenset(
    {"auto", "char", "const", "delete", "double", "half", "inline", "long", "new", "short", "static", "this", "void"}
)
_STAND_IN = "impl"


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """Split Python source into ("code" | "string" | "comment", text); joined again they give the source."""
    start = 0
    while (found := _TOKEN.search(source, start)) is not None:
        if found.start() > start:
            yield "code", source[start : found.start()]
        if found["comment"] is not None:
            start = found.end()
            yield "comment", found.group()
        else:  # an unterminated string ends with its line, or with the source if triple-quoted
            start = _STRING_END[found["quote"]].match(source, found.end()).end()
            yield "string", source[found.start() : start]
    if start < len(source):
        yield "code", source[start:]


def _tidy(text: str) -> str:
    """Drop white space at line ends and all but one of several blank lines."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?<![ \t])[ \t]++(?=\n)", "", text))


def strip_cpp_comments(text: str) -> str:
    """C++ source without ``//`` and ``/* */`` comments; string and character literals are left alone.

    Examples
    --------
    >>> strip_cpp_comments('int a = 4 / 2; // half\\nauto u = "http://x"; /* why */ f();')
    'int a = 4 / 2;\\nauto u = "http://x";   f();'
    """

    def replace(match: re.Match) -> str:
        if match["keep"] is not None:
            return match.group()
        return " " if match["block"] is not None else ""

    return _tidy(_CPP_TOKEN.sub(replace, text))


def _plain_words(text: str) -> str:
    """A message that calls a kernel a kernel: "custom kernel failed" says where it stands, "kernel failed" does not."""

    def shorten(match: re.Match) -> str:
        word = match.group().rstrip(" ")
        follows = match.string[match.end() : match.end() + 1]
        return "" if word != match.group() and follows.isalpha() and _MARKER.fullmatch(word) else match.group()

    return re.sub(r"\\.|\{[^{}]*\}|\w+ ?", shorten, text)


def _clean_string(literal: str) -> str:
    """A string literal without claims in its prose; one that holds C++ over several lines also without C++ comments."""
    opened = _TOKEN.match(literal)
    if len(opened["quote"]) == 3:
        head, tail = opened.end(), len(literal) - 3
        body = strip_cpp_comments(literal[head:tail])
        if _CPP_SIGNS.search(body):
            body = _CPP_TOKEN.sub(lambda match: _plain_words(match.group()), body)  # what is left are strings of C++
            return literal[:head] + body + literal[tail:]
    return literal if _CPP_SIGNS.search(literal) else _plain_words(literal)


def _strip_comments(source: str) -> str:
    """Source without Python comments, and with clean string literals; unparsable source too."""
    out: list[str] = []
    for kind, text in _pieces(source):
        if kind == "comment":
            if out and "\n" in out[-1] and not out[-1].rsplit("\n", 1)[1].strip():
                out[-1] = out[-1].rsplit("\n", 1)[0]  # the comment had the line to itself
        elif kind == "string":
            out.append(_clean_string(text))
        else:
            out.append(text)
    return "".join(out)


def _tidy_code(source: str) -> str:
    """Tidy the code between string literals, leaving literals as they are."""
    masked, literals = [], []
    for kind, text in _pieces(source):
        if kind == "string":
            literals.append(text)
            masked.append("\0")
        else:
            masked.append(text)
    parts = _tidy("".join(masked)).split("\0")
    joined = parts[0] + "".join(literal + part for literal, part in zip(literals, parts[1:], strict=True))
    return joined.strip() + "\n"


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Every list of statements in a module, without looking into expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody"):
            if block := getattr(node, name, None):
                yield block
                waiting.extend(block)
        waiting.extend(getattr(node, "handlers", ()))
        waiting.extend(getattr(node, "cases", ()))


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement is nothing but a string."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return False
    return isinstance(statement.value.value, (str, bytes))


def _strip_docstrings(source: str) -> str:
    """Source without docstrings and other statements that are only a string; ``pass`` where a block would be empty."""
    raw = source.encode()
    starts = [0, *(match.end() for match in re.finditer(rb"\n", raw))]
    tree = ast.parse(source)
    cuts: list[tuple[int, int, bytes]] = []
    for block in _blocks(tree):
        idle = [s for s in block if _is_idle(s)]
        for statement in idle:
            begin = starts[statement.lineno - 1] + statement.col_offset
            end = starts[statement.end_lineno - 1] + statement.end_col_offset
            alone = len(idle) == len(block) and statement is idle[0] and block is not tree.body
            cuts.append((begin, end, b"pass" if alone else b""))
    for begin, end, filler in sorted(cuts, reverse=True):
        head, tail = raw[:begin], raw[end:]
        line = head[head.rfind(b"\n") + 1 :]
        if filler:
            raw = head + filler + tail
        elif follows := re.match(rb"[ \t]*;[ \t]*(?=[^\s])", tail):  # 'text'; x = 1
            raw = head + tail[follows.end() :]
        elif line.strip():  # x = 1; 'text'
            raw = re.sub(rb";[ \t]*\Z", b"", head) + re.sub(rb"\A[ \t]*;", b"", tail)
        else:
            raw = head[: len(head) - len(line)] + re.sub(rb"\A[ \t;]*\n?", b"", tail)
    return raw.decode()


def _neutral_names(source: str) -> str:
    """Source with the marker class renamed and claims taken out of names, consistently over Python and C++."""
    words = set(_WORD.findall(source))
    renames: dict[str, str] = {}
    if _MARKER_CLASS in words:
        if _NEUTRAL_CLASS in words:
            renames[_NEUTRAL_CLASS] = _DISPLACED_CLASS
        renames[_MARKER_CLASS] = _NEUTRAL_CLASS
    taken = words | set(renames.values()) | _TAKEN | _CPP_TAKEN
    for word in sorted(words):
        private = word.startswith("_") and not word.startswith("__")
        plain = (_PRIVATE_MARKER if private else _MARKER).sub("", word)
        if plain == word or _LIBRARY_NAME.fullmatch(word):
            continue
        base = plain.strip("_") or _STAND_IN
        base = ("_" if private else "") + (f"{_STAND_IN}_{base}" if base[0].isdigit() else base)
        name, n = base, 2
        while name in taken:
            name, n = f"{base}_{n}", n + 1
        taken.add(name)
        renames[word] = name
    if not renames:
        return source
    return _WORD.sub(lambda match: renames.get(match.group(), match.group()), source)


def clean_source(source: str, *, must_parse: bool = False) -> str:
    """Python source as a forecaster may see it: no comments, no docstrings, no names that tell the variant.

    Parameters
    ----------
    source : str
        A Python module, possibly with C++ or CUDA in its string literals. Source that does not parse keeps its docstrings.
    must_parse : bool, optional
        Raise SyntaxError for source that does not parse, instead of cleaning it as far as that goes.

    Returns
    -------
    str
        Source that parses if the input did, does the same, and is unchanged by cleaning again. NUL characters are dropped.

    Examples
    --------
    >>> print(clean_source('class ModelNew:\\n    "Optimized."\\n    n = 7 // 2  # fast\\n'), end="")
    class Model:
        n = 7 // 2
    """
    text = _strip_comments(source.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n"))
    with contextlib.nullcontext() if must_parse else contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        text = _strip_docstrings(text)
    return _tidy_code(_neutral_names(text))
