"""How a CUDA C++ source says what it takes, what it makes and how it is launched.

A ``.cu`` source begins with comment lines; every line may be repeated, and lists are separated by commas::

    // inputs: x[R, C]
    // outputs: y[R, C] float32
    // scratch: partial[R, cdiv(C, 256)] float32
    // let: TILES = cdiv(C, 256)
    // launch: softmax_rows grid=(R,) block=(256,) shared=4*C args=(x, y, R, C)

Names in an input's brackets take their values from the shapes of the actual inputs: a name seen twice must agree, and so must a
number or an expression. Everything else is integer arithmetic over those names, ``let`` names and integer ``#define`` lines:
``+ - * // %``, parentheses, ``min``, ``max``, ``cdiv``. In ``args`` a tensor's name passes its pointer, an integer expression a
32-bit ``int``, a literal with a decimal point a ``float``. ``shared`` is dynamic shared memory in bytes. Launches run in order;
what is in scratch beforehand is undefined. Entries are ``extern "C" __global__``, so that their names are not mangled.

Nothing here compiles or runs a kernel: the text is parsed, never executed.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kfs.errors import KfsError

DTYPES = (
    *("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2"),
    *("int8", "uint8", "int16", "int32", "int64", "bool"),
)
"""Types a tensor may be declared with, by their torch names."""
FUNCTIONS = {"min": min, "max": max, "cdiv": lambda a, b: -(-a // b)}
MAX_THREADS = 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_VALUE = 2**62
_MAX_TEXT = 500
_MAX_ITEMS = 64
_KINDS = ("inputs", "outputs", "scratch", "let", "launch")
_LINE = re.compile(rf"^\s*//\s*({'|'.join(_KINDS)})\s*:(.*)$")
_TENSOR = re.compile(r"([A-Za-z_]\w*)\s*\[(.*)\]\s*(\w+)?", re.DOTALL)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+(\d{1,18})[ \t]*(?://.*)?$", re.MULTILINE)
_OPERATORS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


class LaunchError(KfsError, ValueError):
    """A CUDA C++ source whose leading comments do not say how to launch it, or do not fit the inputs."""


@dataclass(frozen=True)
class Tensor:
    """A declared input, output or scratch tensor."""

    name: str
    dims: tuple[str, ...]
    """Expressions, outermost first."""
    dtype: str | None
    """Torch name; None for an input that does not say."""
    line: int


@dataclass(frozen=True)
class Launch:
    """One launch, its numbers still expressions."""

    entry: str
    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str
    args: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class BoundTensor:
    """A tensor whose shape is known."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class BoundLaunch:
    """One launch with its numbers."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    """Dynamic shared memory, bytes."""
    args: tuple[str | int | float, ...]
    """A tensor's name (its pointer), an int (32 bits) or a float (32 bits)."""
    line: int = field(default=0, compare=False)

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)


@dataclass(frozen=True)
class Program:
    """What the leading comments of a source declare."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    scratch: tuple[Tensor, ...]
    lets: tuple[tuple[str, str, int], ...]
    """Name, expression, line."""
    launches: tuple[Launch, ...]
    defines: Mapping[str, int] = field(default_factory=dict)
    """Integer ``#define`` lines of the source."""

    def bind(self, shapes: Sequence[Sequence[int]], dtypes: Sequence[str] | None = None) -> dict[str, int]:
        """Sizes by name, from the shapes of the actual inputs.

        Parameters
        ----------
        shapes : sequence of shapes
            One for each declared input, in order.
        dtypes : sequence of str, optional
            Torch names of the inputs' types; checked against those that are declared.

        Raises
        ------
        LaunchError
            If the number of inputs, a rank, a size or a type is not as declared.
        """
        if len(shapes) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise LaunchError(f"{len(shapes)} inputs given, the source declares {len(self.inputs)} ({names})")
        sizes = dict(self.defines)
        for tensor, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(tensor.dims):
                raise LaunchError(
                    f"line {tensor.line}: input {tensor.name!r} has shape {tuple(shape)}, declared [{', '.join(tensor.dims)}]"
                )
            for dim, size in zip(tensor.dims, shape, strict=True):
                if dim.isidentifier() and sizes.setdefault(dim, int(size)) != size:
                    raise LaunchError(
                        f"line {tensor.line}: input {tensor.name!r} has {dim} = {size}, but {dim} is {sizes[dim]} already"
                    )
        for tensor, shape in zip(self.inputs, shapes, strict=True):
            for dim, size in zip(tensor.dims, shape, strict=True):
                if (expected := evaluate(dim, sizes, tensor.line)) != size:
                    raise LaunchError(
                        f"line {tensor.line}: input {tensor.name!r} has size {size} where {dim} = {expected} is declared"
                    )
        for tensor, dtype in zip(self.inputs, dtypes or (), strict=False):
            if tensor.dtype not in (None, dtype):
                raise LaunchError(f"line {tensor.line}: input {tensor.name!r} is {dtype}, declared {tensor.dtype}")
        for name, text, line in self.lets:
            value = evaluate(text, sizes, line)
            if sizes.setdefault(name, value) != value:
                raise LaunchError(f"line {line}: let {name!r} is {sizes[name]} already; choose another name")
        return sizes

    def tensors(self, kind: str, sizes: Mapping[str, int]) -> list[BoundTensor]:
        """Shapes and types of the ``outputs`` or the ``scratch`` tensors, in order."""
        found = []
        for tensor in {"outputs": self.outputs, "scratch": self.scratch}[kind]:
            shape = tuple(evaluate(d, sizes, tensor.line) for d in tensor.dims)
            if any(n < 0 for n in shape) or math.prod(shape) > 2**40:
                raise LaunchError(f"line {tensor.line}: {tensor.name!r} would have shape {shape}; sizes are 0 to 2**40 elements")
            found.append(BoundTensor(tensor.name, shape, tensor.dtype))
        return found

    def plan(self, sizes: Mapping[str, int]) -> list[BoundLaunch]:
        """Every launch with its numbers, in order.

        Raises
        ------
        LaunchError
            If a grid, block, shared size or argument is outside what a GPU accepts.
        """
        return [self._bound(launch, sizes) for launch in self.launches]

    def _bound(self, launch: Launch, sizes: Mapping[str, int]) -> BoundLaunch:
        where = f"line {launch.line}: launch of {launch.entry!r}"
        grid, block = (
            tuple(evaluate(t, sizes, launch.line) for t in texts) + (1,) * (3 - len(texts))
            for texts in (launch.grid, launch.block)
        )
        if any(not 1 <= n <= most for n, most in zip(grid, _MAX_GRID, strict=True)):
            raise LaunchError(f"{where}: grid {grid}; each is 1 to {_MAX_GRID}")
        if any(n < 1 for n in block) or math.prod(block) > MAX_THREADS or block[2] > 64:
            raise LaunchError(f"{where}: block {block}; each at least 1, at most {MAX_THREADS} threads, z at most 64")
        shared = evaluate(launch.shared, sizes, launch.line)
        if not 0 <= shared < 2**31:
            raise LaunchError(f"{where}: shared={shared} bytes; at least 0")
        tensors = {t.name for t in (*self.inputs, *self.outputs, *self.scratch)}
        args = tuple(_argument(a, tensors, sizes, launch) for a in launch.args)
        return BoundLaunch(launch.entry, grid, block, shared, args, launch.line)


def _argument(text: str, tensors: set[str], sizes: Mapping[str, int], launch: Launch) -> str | int | float:
    if text in tensors:
        return text
    if (number := _float_literal(text)) is not None:
        return number
    value = evaluate(text, sizes, launch.line)
    if not -(2**31) <= value < 2**31:
        raise LaunchError(f"line {launch.line}: launch of {launch.entry!r}: {text} = {value} does not fit a 32-bit int")
    return value


def _float_literal(text: str) -> float | None:
    """Value of a literal such as ``1e-6`` or ``-0.5``; None for anything else."""
    if re.fullmatch(r"[+-]?\s*(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?", text):
        value = float(text.replace(" ", ""))
        return value if math.isfinite(value) else None
    return None


def parse_launch(source: str) -> Program:
    """Read the leading comments of a CUDA C++ source.

    Raises
    ------
    LaunchError
        Naming the line, what was found and what is allowed.

    Examples
    --------
    >>> text = "// inputs: x[N]\\n// outputs: y[N] float32\\n// launch: twice grid=(cdiv(N, 64),) block=(64,) args=(x, y, N)"
    >>> program = parse_launch(text)
    >>> sizes = program.bind([(100,)])
    >>> program.plan(sizes)[0].grid, program.plan(sizes)[0].args
    ((2, 1, 1), ('x', 'y', 100))
    """
    found = {kind: [] for kind in _KINDS}
    for number, text in enumerate(source.split("\n"), start=1):
        stripped = text.strip()
        if (match := _LINE.match(text)) is not None:
            kind, rest = match[1], match[2].strip()
            if len(rest) > _MAX_TEXT or len(found[kind]) >= _MAX_ITEMS:
                raise LaunchError(f"line {number}: at most {_MAX_TEXT} characters a line and {_MAX_ITEMS} '// {kind}:' entries")
            read = {"let": _read_let, "launch": _read_launch}.get(kind, _read_tensors)
            found[kind] += read(rest, number, kind)
        elif stripped and not stripped.startswith(("//", "#")):
            break  # code begins
    for kind in ("inputs", "outputs", "launch"):
        if not found[kind]:
            raise LaunchError(
                f"no '// {kind}:' line before the first line of code; a CUDA C++ source begins with '// inputs: x[R, C]', "
                "'// outputs: y[R, C] float32' and '// launch: NAME grid=(R,) block=(256,) args=(x, y, R, C)'"
            )
    seen: set[str] = set()
    for tensor in (*found["inputs"], *found["outputs"], *found["scratch"]):
        if tensor.name in seen:
            raise LaunchError(f"line {tensor.line}: tensor {tensor.name!r} is declared twice")
        seen.add(tensor.name)
    for tensor in (*found["outputs"], *found["scratch"]):
        if tensor.dtype is None:
            raise LaunchError(f"line {tensor.line}: {tensor.name!r} needs a type after its brackets: {', '.join(DTYPES)}")
    defines: dict[str, int] = {}
    for name, value in _DEFINE.findall(source):
        defines.setdefault(name, int(value))
    return Program(*(tuple(found[kind]) for kind in _KINDS), defines)


def evaluate(text: str, sizes: Mapping[str, int], line: int = 0) -> int:
    """Value of an integer expression over named sizes.

    Raises
    ------
    LaunchError
        If it is not one, names something unknown, divides by zero or leaves 62 bits.

    Examples
    --------
    >>> evaluate("4 * cdiv(C, 256)", {"C": 1000})
    16
    """
    where = f"line {line}: " if line else ""
    try:
        tree = ast.parse(text, mode="eval")
        return _value(tree.body, sizes)
    except LaunchError as error:
        raise LaunchError(f"{where}in {text!r}: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise LaunchError(f"{where}{text!r} is not an expression; write integers, names, + - * // %, min, max, cdiv") from None


def _value(node: ast.AST, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.Name):
        if node.id not in sizes:
            raise LaunchError(f"unknown name {node.id!r}; known: {', '.join(sorted(sizes)) or 'none'}")
        value = sizes[node.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand, sizes) * (-1 if isinstance(node.op, ast.USub) else 1)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        if right == 0 and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            raise LaunchError("division by zero")
        value = _OPERATORS[type(node.op)](left, right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords:
        values = [_value(a, sizes) for a in node.args]
        if len(values) < 2 or (node.func.id == "cdiv" and (len(values) != 2 or values[1] == 0)):
            raise LaunchError(f"{node.func.id} takes two values" + (", the second not zero" if node.func.id == "cdiv" else ""))
        value = FUNCTIONS[node.func.id](*values)
    else:
        raise LaunchError(f"{ast.unparse(node)!r} is not allowed; write integers, names, + - * // %, min, max, cdiv")
    if abs(value) > _MAX_VALUE:
        raise LaunchError("the value is larger than 2**62")
    return value


def _split(text: str) -> list[str]:
    """Parts between commas outside brackets and parentheses; a comma at the end adds none."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    parts = [p.strip() for p in parts]
    return parts[:-1] if not parts[-1] else parts


def _read_tensors(text: str, line: int, kind: str) -> list[Tensor]:
    tensors = []
    for part in _split(text):
        match = _TENSOR.fullmatch(part)
        if match is None:
            raise LaunchError(
                f"line {line}: found {part!r} in '// {kind}:'; write NAME[SIZE, ...] TYPE, for example x[R, C] float32"
            )
        if match[3] is not None and match[3] not in DTYPES:
            raise LaunchError(f"line {line}: unknown type {match[3]!r} of {match[1]!r}; known: {', '.join(DTYPES)}")
        tensors.append(Tensor(match[1], tuple(_split(match[2])), match[3], line))
    if not tensors:
        raise LaunchError(f"line {line}: '// {kind}:' is empty; write NAME[SIZE, ...] TYPE")
    return tensors


def _read_let(text: str, line: int, kind: str) -> list[tuple[str, str, int]]:
    lets = []
    for part in _split(text):
        name, equals, expression = part.partition("=")
        if not equals or not name.strip().isidentifier() or not expression.strip():
            raise LaunchError(f"line {line}: found {part!r} in '// let:'; write NAME = EXPRESSION")
        lets.append((name.strip(), expression.strip(), line))
    return lets


def _read_launch(text: str, line: int, kind: str) -> list[Launch]:
    match = re.match(r"([A-Za-z_]\w*)(?=\s|$)", text)
    form = "NAME grid=(...) block=(...) shared=BYTES args=(...)"
    if match is None:
        raise LaunchError(f"line {line}: found {text!r} in '// launch:'; write {form}")
    fields, key, start, depth = {}, None, match.end(), 0
    rest = text + " "
    for i, char in enumerate(rest):
        depth += (char in "([") - (char in ")]")
        if i >= match.end() and depth == 0 and (word := re.compile(r"(?<=[\s)])([A-Za-z]\w*)\s*=(?!=)").match(rest, i)):
            if key is not None:
                fields[key] = rest[start:i].strip()
            key, start = word[1], word.end()
            if key in fields or key not in ("grid", "block", "shared", "args"):
                raise LaunchError(f"line {line}: {key!r} in the launch of {match[1]!r} is unknown or repeated; write {form}")
    if key is not None:
        fields[key] = rest[start:].strip()
    if missing := [k for k in ("grid", "block", "args") if not fields.get(k)]:
        raise LaunchError(f"line {line}: launch of {match[1]!r} lacks {', '.join(missing)}; write {form}")
    grid, block, args = (_tuple(fields[k], k, line) for k in ("grid", "block", "args"))
    for key, texts in (("grid", grid), ("block", block)):
        if not 1 <= len(texts) <= 3:
            raise LaunchError(f"line {line}: {key}={fields[key]} has {len(texts)} numbers; one to three are allowed")
    return [Launch(match[1], grid, block, fields.get("shared", "0"), args, line)]


def _tuple(text: str, key: str, line: int) -> tuple[str, ...]:
    """Parts of ``(a, b)``; a single expression without parentheses is one part."""
    if text.startswith("(") and text.endswith(")"):
        return tuple(_split(text[1:-1]))
    if key == "args" or not text:
        raise LaunchError(f"line {line}: found {key}={text}; write {key}=(...)")
    return (text,)
