"""The same kernel in other words: a control for whether a forecaster reads a source or remembers it.

Public kernels are in the training data of language models. ``disguise`` takes out comments and docstrings, renames what the
source itself names (variables, functions, classes, its own attributes), and lays the text out anew; what it computes stays what
it was. A name stays where anything but the source's own code could reach it: names of libraries, of the interface (``kernel``,
``Model``, ``get_inputs``), keywords of calls, every word of a string, attributes where a class inherits from a library or looks
itself up by text. C++ in strings is disguised by tokens, within the same limits. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kfs.data.clean import strip_cpp_comments

MAX_CHARACTERS = 200_000
_INTERFACE = frozenset({"kernel", "custom_kernel", "Model", "ModelNew", "get_inputs", "get_init_inputs", "self", "cls"})
_MODULE_NAMES = """
    T_destination _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks
    _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook _load_from_state_dict
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _modules _named_members
    _non_persistent_buffers_set _parameters _register_load_state_dict_pre_hook _register_state_dict_hook
    _replicate_for_data_parallel _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version
    _wrapped_call_impl add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
    extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
    named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
    state_dict to to_empty train training type xpu zero_grad
"""
_MODULE = frozenset(_MODULE_NAMES.split())
"""Attributes of ``torch.nn.Module`` and its instances, which mean what they mean."""
_BASES = frozenset({"object", "nn.Module", "torch.nn.Module", "Module"})
"""Bases whose attributes are known: ``_MODULE`` at most."""
_BY_TEXT = re.compile(
    r"\b(?:getattr|setattr|hasattr|delattr|attrgetter|methodcaller|vars|dir|__dict__|__slots__|__getattr__|__setattr__|"
    r"named_\w+|state_dict|load_state_dict|get_submodule|get_parameter|get_buffer)\b"
)
"""What may reach an attribute by a text that is made at run time."""
_WORD = re.compile(r"\b[^\W\d]\w*")
_PLACEHOLDER = re.compile(r"\{(\w+)[^{}]*\}|%\((\w+)\)|\$\{?(\w+)")
_CPP = re.compile(r"#include\b|#define\b|\b__global__\b|\b__device__\b|\btorch::Tensor\b|\bextern\s+\"C\"")
_CPP_TOKEN = re.compile(r"\w+|[^\w\s]")
_CPP_HEADER = re.compile(r"^[ \t]*//[ \t]*(?:inputs|outputs|scratch|let|launch)[ \t]*:.*$", re.MULTILINE)
_CPP_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
_CPP_MACRO = re.compile(r"^[ \t]*#(?:[^\\\n]|\\\n|\\.)*", re.MULTILINE)
_CPP_TYPE_NAMES = "int float double bool char half __half auto size_t scalar_t float2 float4 Tensor"
_CPP_INTEGER_NAMES = "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"
_CPP_TYPES = frozenset([*_CPP_TYPE_NAMES.split(), *_CPP_INTEGER_NAMES.split()])
_CPP_BETWEEN = frozenset({"const", "*", "&", "__restrict__", "long", "int", "unsigned"})
_CPP_HEAD = 60
"""Tokens between ``__global__`` and the function's name, at most."""


@dataclass(frozen=True)
class Disguised:
    """A source in other words."""

    source: str
    renamed: int
    """Names that were replaced; 0 where the source was left as it was."""


def disguise(source: str, language: str = "python") -> Disguised:
    """A source with other names, other layout and no comments that computes the same.

    Parameters
    ----------
    source : str
        Untrusted; only parsed. A Python source that does not parse, imports ``*``, or has more than ``MAX_CHARACTERS`` is
        returned as it is.
    language : str
        ``python`` and ``triton`` are parsed; other languages are taken as C++.

    Examples
    --------
    >>> print(disguise("def kernel(scores):\\n    top = scores.max()  # for stability\\n    return scores - top").source)
    def kernel(a1):
        a2 = a1.max()
        return a1 - a2
    """
    if len(source) > MAX_CHARACTERS:
        return Disguised(source, 0)
    if language not in ("python", "triton"):
        return _cpp(source, frozenset(), frozenset())
    try:
        tree = ast.parse(source)
        found = _Names(tree)
        if found.unknown:
            return Disguised(source, 0)
        words = _WORD.findall(unicodedata.normalize("NFKC", source))
        fresh, wanted = _fresh(set(words)), found.variables | found.attributes
        mapping = {name: next(fresh) for name in dict.fromkeys([*(w for w in words if w in wanted), *sorted(wanted)])}
        renaming = _Renaming(found, mapping, docstrings="__doc__" in source)
        text = ast.unparse(ast.fix_missing_locations(renaming.visit(tree)))
        if renaming.literals:
            marks = re.compile("|".join(map(re.escape, sorted(renaming.literals, key=len, reverse=True))))
            text = marks.sub(lambda m: renaming.literals[m[0]], text)
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Disguised(source, 0)
    renamed = len(mapping) + renaming.in_strings
    return Disguised(text, renamed) if renamed else Disguised(source, 0)


def _fresh(taken: set[str]) -> Iterator[str]:
    """Names that stand nowhere in a source."""
    i = 0
    while True:
        i += 1
        if f"a{i}" not in taken:
            yield f"a{i}"


class _Names:
    """What of a module's names may be renamed, and what a string shares with the rest of the module."""

    def __init__(self, tree: ast.Module):
        nodes = list(ast.walk(tree))
        used = {n.id for n in nodes if isinstance(n, ast.Name)}
        bound, kept, keywords, elsewhere = set(), set(), set(), set()
        self.strings: Counter[str] = Counter()
        """How many different strings a word stands in."""
        texts: set[str] = set()
        own = _SelfAttributes(tree)
        for node in nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    bound.add(name)
                case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    bound.add(name)
                case ast.ExceptHandler(name=str(name)):
                    bound.add(name)
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    kept |= {(a.asname or a.name).split(".")[0] for a in aliases}
                case ast.keyword(arg=str(name)):
                    keywords.add(name)
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                    kept.add(name)
                case ast.MatchClass(kwd_attrs=names):
                    elsewhere |= set(names)
                case ast.Constant(value=str(text)):
                    texts.add(text)
                case ast.Attribute(attr=name) if id(node) not in own.nodes:
                    elsewhere.add(name)
        self.docstrings = {id(d) for n in nodes if (d := _docstring(n)) is not None}
        plain = {
            n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in self.docstrings
        }
        in_f_strings = {p.value for n in nodes if isinstance(n, ast.JoinedStr) for p in n.values if isinstance(p, ast.Constant)}
        for text in texts:
            self.strings.update(set(_WORD.findall(text)))
        said = {w for text in plain if text in in_f_strings or not _CPP.search(text) for w in _WORD.findall(text)}
        said |= {w for text in plain for found in _PLACEHOLDER.findall(text) for w in found if w}
        self.keywords, self.mentioned = keywords, keywords | bound | used | elsewhere | kept | own.stored
        classes = [n for n in nodes if isinstance(n, ast.ClassDef)]
        for node in classes:
            kept |= _class_body(node)
        if any("__name__" in t or "__qualname__" in t for t in elsewhere) or any(re.match(r"_\w+?__\w", a) for a in elsewhere):
            kept |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
        kept |= _INTERFACE | said | keywords | set(dir(builtins)) | set(keyword.kwlist)
        usual = lambda names: {n for n in names if not n.startswith("__")}
        self.unknown = any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in nodes)
        self.variables = usual(bound - kept)
        self.attributes: set[str] = set()
        plainly = {id(n.func) for n in nodes if isinstance(n, ast.Call) and _named_outright(n)}
        looks = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in plainly} | bound
        by_text = any(map(_BY_TEXT.fullmatch, looks | {n.attr for n in nodes if isinstance(n, ast.Attribute)}))
        if not by_text and _only_known_bases(classes):
            methods = {n.name for c in classes for n in c.body if isinstance(n, ast.FunctionDef) and n.name.startswith("_")}
            private = methods - used
            reached = elsewhere | said | keywords | (set().union(*map(_class_body, classes)) - private)
            self.attributes = usual(own.stored | private) - reached - _MODULE - _INTERFACE


class _SelfAttributes(ast.NodeVisitor):
    """``self.name`` inside classes: the nodes, and the names that are stored."""

    def __init__(self, tree: ast.Module):
        self.nodes: set[int] = set()
        self.stored: set[str] = set()
        self._depth = 0
        self.visit(tree)

    def visit_ClassDef(self, node):
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def visit_Attribute(self, node):
        if self._depth and isinstance(node.value, ast.Name) and node.value.id == "self":
            self.nodes.add(id(node))
            if isinstance(node.ctx, ast.Store):
                self.stored.add(node.attr)
        self.generic_visit(node)


def _docstring(node: ast.AST) -> ast.Constant | None:
    if not isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or not node.body:
        return None
    first = node.body[0]
    value = first.value if isinstance(first, ast.Expr) else None
    return value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _class_body(node: ast.ClassDef) -> set[str]:
    """Names bound or used in a class's body outside its methods: they are reached as attributes."""
    found, waiting = set(), list(node.body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(statement.name)
            waiting += statement.decorator_list
        elif isinstance(statement, ast.Name):
            found.add(statement.id)
        else:
            waiting += ast.iter_child_nodes(statement)
    return found


def _named_outright(call: ast.Call) -> bool:
    """Whether it is ``getattr`` or the like with its name as a literal, whose words are kept anyway."""
    named = (
        isinstance(call.func, ast.Name) and call.func.id in ("getattr", "setattr", "hasattr", "delattr") and len(call.args) > 1
    )
    return named and isinstance(call.args[1], ast.Constant) and isinstance(call.args[1].value, str)


def _only_known_bases(classes: list[ast.ClassDef]) -> bool:
    """Whether all classes inherit from nothing but ``object``, ``nn.Module`` and one another."""
    known = _BASES | {c.name for c in classes}
    return all(ast.unparse(base) in known for c in classes for base in c.bases) and not any(c.keywords for c in classes)


class _Renaming(ast.NodeTransformer):
    """Applies the mapping, takes out docstrings, and disguises C++ in strings."""

    def __init__(self, found: _Names, mapping: dict[str, str], docstrings: bool):
        self.names = {n: mapping[n] for n in found.variables}
        self.attributes = {n: mapping[n] for n in found.attributes}
        self.found, self.in_strings, self.literals = found, 0, {}
        self._keep_docstrings, self._classes, self._methods = docstrings, 0, set()

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
        if self._classes and isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self.attributes.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_ClassDef(self, node):
        self._methods |= {id(n) for n in node.body if isinstance(n, ast.FunctionDef)}
        self._classes += 1
        node = self._block(node)
        self._classes -= 1
        return node

    def _block(self, node):
        if not isinstance(node, ast.Module):
            known = self.attributes if id(node) in self._methods else self.names
            node.name = known.get(node.name, node.name)
        if _docstring(node) is not None and not self._keep_docstrings:
            node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        return self.generic_visit(node)

    visit_Module = visit_FunctionDef = visit_AsyncFunctionDef = _block

    def visit_JoinedStr(self, node):
        node.values = [self.visit(v) if isinstance(v, ast.FormattedValue) else v for v in node.values]
        return node

    def visit_FormattedValue(self, node):
        node.value = self.visit(node.value)
        if node.format_spec is not None:
            node.format_spec = self.visit(node.format_spec)
        return node

    def visit_Constant(self, node):
        if isinstance(node.value, str) and id(node) not in self.found.docstrings and _CPP.search(node.value):
            own = set(_WORD.findall(node.value))
            shared = {w for w in own if self.found.strings[w] > 1} | self.found.keywords
            shared |= {w for groups in _PLACEHOLDER.findall(node.value) for w in groups if w}
            made = _cpp(node.value, shared, self.found.mentioned)
            self.in_strings += made.renamed
            node.value = f"kfs C++ {len(self.literals)}"
            self.literals[repr(node.value)] = _literal(made.source)
        return node


def _literal(text: str) -> str:
    """A string over several lines, as people write it."""
    return "'''" + text.replace("\\", "\\\\").replace("'", "\\'") + "'''"


def _cpp(text: str, shared: set[str] | frozenset[str], mentioned: set[str] | frozenset[str]) -> Disguised:
    """C++ in other words.

    Names that are ``shared`` with other strings stay, functions that are ``mentioned`` in the code around it too, and whatever
    stands in quotes or macros, is reached through a type or an object, or is called before it is defined.
    """
    header = "\n".join(_CPP_HEADER.findall(text))
    body = strip_cpp_comments(text)
    quoted = {w for q in _CPP_QUOTED.findall(body) for w in _WORD.findall(q)}
    macros = {w for m in _CPP_MACRO.findall(body) for w in _WORD.findall(m)}
    functions, variables, reached = _cpp_names(body)
    kept = quoted | macros | reached | set(shared) | {"operator", "main"}
    wanted = (functions - set(mentioned)) | (variables - set(_WORD.findall(header)))
    wanted = {n for n in wanted - kept if not n.startswith("__")}
    fresh = _fresh({*_WORD.findall(text), *mentioned})
    mapping = {name: next(fresh) for name in dict.fromkeys(w for w in _WORD.findall(body) if w in wanted)}
    swap = lambda part: _WORD.sub(lambda m: mapping.get(m[0], m[0]), part)
    lines = [" " * (len(line) > len(line.lstrip())) + line.strip() for line in swap(body).splitlines() if line.strip()]
    return Disguised("\n".join([*swap(header).splitlines(), *lines]) + "\n", len(mapping))


def _cpp_names(body: str) -> tuple[set[str], set[str], set[str]]:
    """Device functions and variables that a text declares, and names it reaches through a type or an object."""
    tokens = _CPP_TOKEN.findall(body)
    functions, variables, reached, first, called = set(), set(), set(), {}, set()
    for i, token in enumerate(tokens):
        first.setdefault(token, i)
        after = tokens[i + 1] if i + 1 < len(tokens) else ""
        if after == "(":
            called.add(token)
        if (
            token in ("__global__", "__device__")
            and (at := _function_at(tokens, i)) is not None
            and first.get(tokens[at], at) == at
        ):
            functions.add(tokens[at])
        if (token in (".", ">") and (token == "." or tokens[i - 1] == "-")) or (token == ":" and i and tokens[i - 1] == ":"):
            reached.add(after)
        if token in _CPP_TYPES:
            j = i + 1
            while j < min(len(tokens), i + 12) and tokens[j] in _CPP_BETWEEN:
                j += 1
            if j + 1 < len(tokens) and _WORD.fullmatch(tokens[j]) and tokens[j + 1] in "=;,)[:":
                variables.add(tokens[j])
    return functions, variables - called - _CPP_TYPES - _CPP_BETWEEN, reached


def _function_at(tokens: list[str], start: int) -> int | None:
    """Where the name stands of the function that ``__global__`` or ``__device__`` at ``start`` begins; None for a variable."""
    j, end = start + 1, min(len(tokens) - 1, start + _CPP_HEAD)
    while j < end and tokens[j] not in (";", "{", "}", "="):
        if tokens[j + 1] == "(":
            if tokens[j] != "__launch_bounds__":
                return j if _WORD.fullmatch(tokens[j]) else None
            while j < end and tokens[j] != ")":
                j += 1
        j += 1
    return None
