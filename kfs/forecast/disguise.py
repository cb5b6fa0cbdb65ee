"""The same kernel in other words: a control for whether a forecaster reads a source or remembers it.

Public kernels are in the training data of language models. ``disguise`` takes out comments and docstrings, renames what the
source itself names (variables, parameters, functions, classes, its own attributes), and lays the text out anew; what it computes
stays what it was. Names of libraries, of the interface (``kernel``, ``Model``, ``get_inputs``) and whatever may be reached by
its name from elsewhere are left alone. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kfs.data.clean import strip_cpp_comments

_INTERFACE = frozenset(
    {"kernel", "custom_kernel", "Model", "ModelNew", "get_inputs", "get_init_inputs", "forward", "self", "cls"}
)
_REFLECTION = frozenset({"exec", "eval", "globals", "locals", "vars"})
_WORD = re.compile(r"[^\W\d]\w*")
_PRIVATE = re.compile(r"(?!_apply$|_call_impl$|_get_name$|_load_from|_save_to|_register|_replicate)_[a-zA-Z]\w*")
"""Methods no library calls or overrides."""
_CPP = re.compile(r"#include\b|#define\b|\b__global__\b|\b__device__\b|\btorch::Tensor\b|\bextern\s+\"C\"")
_CPP_HEADER = re.compile(r"^\s*//\s*(?:inputs|outputs|scratch|let|launch)\s*:.*$", re.MULTILINE)
_CPP_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
_CPP_DECLARED = re.compile(
    r"\b(?:int|float|double|bool|char|half|__half|auto|size_t|scalar_t|u?int(?:8|16|32|64)_t|float[24]|(?:torch|at)::Tensor)\b"
    r"(?:\s*(?:const|\*|&|__restrict__))*\s+(?:const\s+)?[*&]*\s*([A-Za-z_]\w*)\s*(?=[=;,)\[:])"
)
_CPP_FUNCTION = re.compile(
    r"\b(?:__global__|__device__)\b[^;{}()]*(?:__launch_bounds__\s*\([^()]*\)\s*)?[^;{}()]*?\b([A-Za-z_]\w*)\s*\("
)
_CPP_REACHED = re.compile(r"(?:\.|->|::)\s*([A-Za-z_]\w*)")
_CPP_MACRO = re.compile(r"^\s*#.*(?:\\\n.*)*", re.MULTILINE)


@dataclass(frozen=True)
class Disguised:
    """A source in other words."""

    source: str
    renamed: int
    """Names that were replaced."""


def disguise(source: str, language: str = "python") -> Disguised:
    """A source with other names, other layout and no comments that computes the same.

    Parameters
    ----------
    source : str
        Untrusted; only parsed. A Python source that does not parse is returned as it is.
    language : str
        ``python`` and ``triton`` are parsed; other languages are taken as C++.

    Examples
    --------
    >>> print(disguise("def kernel(scores):\\n    top = scores.max()  # for stability\\n    return scores - top").source)
    def kernel(a1):
        a2 = a1.max()
        return a1 - a2
    """
    if language not in ("python", "triton"):
        return _cpp(source, frozenset())
    try:
        tree = ast.parse(source)
        names, attributes = _own_names(tree)
        fresh = _fresh({*_WORD.findall(source)})
        order = [n for n in _WORD.findall(source) if n in names or n in attributes]
        mapping = {name: next(fresh) for name in dict.fromkeys(order)}
        renaming = _Renaming({n: mapping[n] for n in names}, {n: mapping[n] for n in attributes}, source)
        text = ast.unparse(ast.fix_missing_locations(renaming.visit(tree)))
        for mark, literal in renaming.literals.items():
            text = text.replace(mark, literal)
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Disguised(source, 0)
    return Disguised(text, len(mapping) + renaming.in_strings)


def _fresh(taken: set[str]):
    """Names that stand nowhere in a source."""
    i = 0
    while True:
        i += 1
        if f"a{i}" not in taken:
            yield f"a{i}"


def _own_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Variables, functions and classes that may be renamed, and attributes that may."""
    bound, parameters, kept, keywords, strings = set(), set(), set(), set(), set()
    own, elsewhere, private = set(), set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
                parameters.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                kept |= {(a.asname or a.name).split(".")[0] for a in aliases}
            case ast.keyword(arg=str(name)):
                keywords.add(name)
            case ast.Constant(value=str(text)):
                strings.add(text)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(value=value, attr=name) if not (isinstance(value, ast.Name) and value.id == "self"):
                elsewhere.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                kept.add(name)
        if isinstance(node, ast.ClassDef):
            bound.add(node.name)
            kept |= _class_body(node)
            private |= {n.name for n in node.body if isinstance(n, ast.FunctionDef) and _PRIVATE.fullmatch(n.name)}
    if _REFLECTION & {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}:
        strings |= {word for text in strings for word in _WORD.findall(text)}
    kept |= _INTERFACE | strings | set(dir(builtins)) | set(keyword.kwlist) | (parameters & keywords)
    usual = lambda names: {n for n in names if not n.startswith("__")}
    return usual(bound - kept), usual((own - kept) | private) - elsewhere - strings


def _class_body(node: ast.ClassDef) -> set[str]:
    """Names bound in a class's body: they are reached as attributes."""
    found = set()
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(statement.name)
        else:
            found |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return found


class _Renaming(ast.NodeTransformer):
    """Applies the mappings, takes out docstrings, and disguises C++ in strings."""

    def __init__(self, names: dict[str, str], attributes: dict[str, str], source: str):
        self.names, self.attributes, self.in_strings = names, attributes, 0
        self.methods, self.literals, self._source = set(), {}, source

    def visit_Name(self, node):
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node):
        node.arg = self.names.get(node.arg, node.arg)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node):
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def _declared(self, node):
        node.names = [self.names.get(n, n) for n in node.names]
        return node

    visit_Global = visit_Nonlocal = _declared

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self.attributes.get(node.attr, node.attr)
        return self.generic_visit(node)

    def _block(self, node):
        if hasattr(node, "name"):
            known = self.attributes if node in self.methods else self.names
            node.name = known.get(node.name, node.name)
        if isinstance(node, ast.ClassDef):
            self.methods |= {n for n in node.body if isinstance(n, ast.FunctionDef)}
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        return self.generic_visit(node)

    visit_Module = visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _block

    def visit_Constant(self, node):
        if isinstance(node.value, str) and _CPP.search(node.value):
            rest = self._source.replace(node.value, " ")
            found = _cpp(node.value, frozenset(_WORD.findall(rest)))
            self.in_strings += found.renamed
            node.value = f"kfs C++ {len(self.literals)}"
            self.literals[repr(node.value)] = _literal(found.source)
        return node


def _literal(text: str) -> str:
    """A string over several lines, as people write it."""
    return "'''" + text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'") + "'''"


def _cpp(text: str, mentioned: Iterable[str]) -> Disguised:
    """C++ in other words; names ``mentioned`` outside it, those in quotes and macros, and those reached through a type stay."""
    header = "\n".join(_CPP_HEADER.findall(text))
    body = strip_cpp_comments(text)
    quoted = {w for q in _CPP_QUOTED.findall(body) for w in _WORD.findall(q)}
    macros = {w for m in _CPP_MACRO.findall(body) for w in _WORD.findall(m)}
    reached = set(_CPP_REACHED.findall(body))
    functions = set(_CPP_FUNCTION.findall(body)) - set(mentioned)
    declared = set(_CPP_DECLARED.findall(body)) - set(_WORD.findall(header))
    kept = quoted | macros | reached | {"operator", "main"}
    wanted = {n for n in functions | declared if n not in kept and not n.startswith("__")}
    fresh = _fresh({*_WORD.findall(text), *mentioned})
    mapping = {name: next(fresh) for name in dict.fromkeys(w for w in _WORD.findall(body) if w in wanted)}
    swap = lambda part: _WORD.sub(lambda m: mapping.get(m[0], m[0]), part)
    lines = [" " * (len(line) > len(line.lstrip())) + line.strip() for line in swap(body).splitlines() if line.strip()]
    return Disguised("\n".join([*swap(header).splitlines(), *lines]) + "\n", len(mapping))
