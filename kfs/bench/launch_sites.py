"""What CUDA C++ for the host says of its launches, and the templates those launches use.

For text that cannot be compiled here because its headers are PyTorch's. Template arguments are read at each launch (the element
type of a dispatch counts as ``float``), threads and dynamic shared memory where they are constants of the text; what depends on
inputs stays unknown. Nothing is compiled or run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kfs.bench.launch import LaunchError, evaluate

MAX_LAUNCHES = 64
_NUMBER = re.compile(
    r"(?:const|constexpr)\s+(?:(?:static|unsigned|auto|int|long|short|size_t|u?int\d+_t)\s+)+(\w+)\s*=([^;,{}]{0,200});"
    r"|#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]*)|\b(?:unsigned|int|auto|size_t|u?int\d+_t)\s+(\w+)\s*=([^;,{}]{0,200});"
)
_CHANGED = re.compile(
    r"(?:^|[;{}():,?]|\belse\b)\s*+(\w++)\s*+(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b(\w++)\s*+(?:\+\+|--)|(?:\+\+|--)\s*+(\w++)"
)
"""Assignments that are no declarations."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIM3 = re.compile(r"\bdim3\s+(\w+)\s*(?:=\s*dim3\s*)?[({]([^(){};]{0,200})[)}]")
_SIZES = {"double": 8, "int64_t": 8, "half": 2, "__half": 2, "char": 1, "float4": 16, "float2": 8}
_TYPES = re.compile(
    r"float[24]?|double2?|int[24]?|bool|char|short|long|unsigned|size_t|u?int(8|16|32|64)_t|half2?|__half2?|__nv_bfloat16(2)?"
)
_ELEMENT = "float"
"""What stands for an element type that only a run decides; the problems' tensors are of this type."""


@dataclass(frozen=True)
class Launched:
    """What host code says of the launches of one kernel."""

    name: str
    sites: int
    """Places in the text that launch it."""
    threads: int | None
    """Of a block, the most of any site; None where no site has constants."""
    shared_bytes: int | None
    """Dynamic shared memory, the most of any site; None where a site depends on inputs."""


def kernel_of(entry: str, launched: Mapping[str, Launched]) -> Launched | None:
    """The kernel that an entry of the binary, by its mangled name, was made of; None where it is none of them.

    Examples
    --------
    >>> kernel_of("_Z3addIfEvPT_", {"add": Launched("add", 1, 256, 0)}).threads
    256
    """
    name, at = entry, 3 if entry.startswith("_ZN") else 2
    while entry.startswith("_Z") and (part := re.compile(r"L?(\d{1,4})").match(entry, at)):
        name, at = entry[part.end() : part.end() + int(part[1])], part.end() + int(part[1])
    return launched.get(name)


@dataclass(frozen=True)
class Launch:
    """One ``name<arguments><<<grid, block, shared>>>``."""

    name: str
    arguments: list[str]
    numbers: dict[str, int]
    """Constants that are known at this place."""
    threads: int | None
    shared_bytes: int | None


def launches_of(host: Sequence[str], constants: Sequence[str]) -> Iterator[Launch]:
    """Launches in the text of host functions, in order; ``constants`` are declarations that all of them see."""
    around: dict[str, int] = {}
    for text in constants:
        _learn(text, around)
    for function in host:
        changed = {name for names in _CHANGED.findall(function) for name in names} | _parameters(function)
        numbers, blocks, read = {n: v for n, v in around.items() if n not in changed}, {}, 0
        for match in islice(re.finditer(r"<<<", function), MAX_LAUNCHES):
            before = function[read : match.start()]
            read = match.start()
            _learn(before, numbers, changed)
            blocks |= {name: args for name, args in _DIM3.findall(before)}
            name, arguments = _callee(function[max(0, match.start() - 400) : match.start()])
            numbers_of = _split(function[match.end() : match.end() + 2000], ">>>")
            if not name or not 2 <= len(numbers_of) <= 4:
                continue
            shared = _number(numbers_of[2], numbers) if len(numbers_of) > 2 else 0
            yield Launch(name, arguments, dict(numbers), _threads(numbers_of[1], blocks, numbers), shared)


def _callee(before: str) -> tuple[str, list[str]]:
    """Name and template arguments that stand right before ``<<<``."""
    before = before.rstrip()
    arguments: list[str] = []
    if before.endswith(">"):
        depth, at = 0, len(before)
        while at and (depth or at == len(before)):
            at -= 1
            depth += (before[at] == ">") - (before[at] == "<")
        arguments, before = _split(before[at + 1 : -1] + "\0", "\0"), before[:at].rstrip()
    match = re.search(r"(\w+)$", before)
    return (match[1] if match else ""), arguments


def _split(text: str, stop: str) -> list[str]:
    """Arguments up to ``stop``, split at commas outside brackets; empty where there is no end."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(rf"{re.escape(stop)}|[(\[{{<,>}}\])]", text):
        sign = match.group()
        if sign == stop and depth <= 0:
            return [*parts, text[start : match.start()].strip()]
        if sign == "," and not depth:
            parts.append(text[start : match.start()].strip())
            start = match.end()
        depth += (sign in "([{<") - (sign in ")]}>") if len(sign) == 1 else 0
    return []


def _parameters(function: str) -> set[str]:
    """Words in the parameter list of a function: what they name comes from its caller."""
    return set(re.findall(r"\w+", function[: function.find("{")])) if "{" in function else set()


def _learn(text: str, numbers: dict[str, int], changed: Container[str] = frozenset()) -> None:
    """Add the integer constants that a text defines, but for names that are ``changed`` elsewhere."""
    for match in _NUMBER.finditer(text):
        name, value = next((match[i], match[i + 1]) for i in (1, 3, 5) if match[i] is not None)
        value = _COMMENT.sub(" ", value)
        if name not in changed and (found := _number(value, numbers)) is not None:
            numbers[name] = found
        else:
            numbers.pop(name, None)


def _number(text: str, numbers: Mapping[str, int]) -> int | None:
    """Value of a C++ integer expression of constants; None where it is another one."""
    if len(text) > 200:
        return None
    text = re.sub(r"\bsizeof\s*\(\s*(\w+)\s*\)", lambda m: str(_SIZES.get(m[1], 4)), text.strip())
    text = re.sub(r"\bstatic_cast\s*<[^<>]*>|\bstd::|\((?:int|unsigned|size_t|unsigned int)\)", "", text)
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text).replace("/", "//")
    with contextlib.suppress(LaunchError):
        return evaluate(text, numbers)
    return None


def _threads(text: str, blocks: Mapping[str, str], numbers: Mapping[str, int]) -> int | None:
    """Threads of a block, from an expression, a ``dim3(...)`` or the name of one."""
    if text in blocks:
        sizes = blocks[text]
    else:
        match = re.fullmatch(r"dim3\s*[({](.*)[)}]", text, re.DOTALL)
        sizes = match[1] if match else text
    total = 1
    for part in _split(sizes + "\0", "\0"):
        value = _number(part, numbers)
        if value is None or value < 1:
            return None
        total *= value
    return total


def summary(name: str, launches: Sequence[Launch]) -> Launched:
    """What the launches of one kernel say together."""
    threads = [w.threads for w in launches if w.threads is not None]
    shared = [w.shared_bytes for w in launches]
    return Launched(name, len(launches), max(threads, default=None), None if None in shared else max(shared))


# Templates


@dataclass(frozen=True)
class Template:
    """A kernel that is a template."""

    name: str
    parameters: list[tuple[bool, str, str]]
    """Whether it is a type, its name, its default."""
    signature: str
    """The kernel's own parameters, without defaults."""

    def instances(self, launches: Sequence[Launch]) -> list[str]:
        """Explicit instantiations, one for each set of arguments that a launch names."""
        wanted = [self._arguments(w.arguments, w.numbers) for w in launches] or [self._arguments([], {})]
        made = []
        for values in dict.fromkeys(tuple(w) for w in wanted if w is not None):
            words = {name: value for (_, name, _), value in zip(self.parameters, values, strict=True)}
            signature = re.sub(r"\w+", lambda m, words=words: words.get(m.group(), m.group()), self.signature)
            made.append(f"template __global__ void {self.name}<{', '.join(values)}>({signature});")
        return made

    def _arguments(self, given: Sequence[str], numbers: Mapping[str, int]) -> list[str] | None:
        """A value for each parameter; None where one is unknown."""
        values = []
        for i, (is_type, _, default) in enumerate(self.parameters):
            text = given[i] if i < len(given) else default
            if is_type:
                values.append(text if _TYPES.fullmatch(re.split(r"[\s*]+", text)[0]) else _ELEMENT)
            elif text in ("true", "false"):
                values.append(text)
            elif (number := _number(text, numbers)) is not None:
                values.append(str(number))
            else:
                return None
        return values


def template_of(text: str) -> Template | None:
    """What a kernel is as a template; None where it is none, or a specialisation."""
    match = re.match(r"template\s*<", text)
    if match is None:
        return None
    closing = _end_of(text, match.end() - 1, "<", ">")
    head = text[closing + 1 :]
    named = re.search(
        r"\b(\w+)\s*\((?!\s*\d|\s*\w+\s*\)\s*\w)", re.sub(r"__launch_bounds__\s*\([^()]*\)", lambda m: " " * len(m.group()), head)
    )
    if named is None:
        return None
    close = _end_of(head, head.index("(", named.end(1)), "(", ")")
    parameters = []
    for part in filter(None, _split(text[match.end() : closing] + "\0", "\0")):
        declared, _, default = part.partition("=")
        words = re.findall(r"\w+", declared)
        if len(words) < 2 or "..." in declared:
            return None
        parameters.append((words[0] in ("typename", "class"), words[-1], default.strip()))
    signature = [p.partition("=")[0].strip() for p in _split(head[head.index("(", named.end(1)) + 1 : close] + "\0", "\0")]
    return Template(named[1], parameters, ", ".join(signature)) if parameters else None


def _end_of(text: str, at: int, opening: str, closing: str) -> int:
    """Where the bracket that opens at ``at`` is closed; the last character where it is not."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if not depth:
            return i
    return len(text) - 1
