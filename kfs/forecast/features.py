"""Numbers a tree can split on, read off a kernel's source text.

Comments and docstrings are taken out first; nothing is imported or run. Three kinds: counts of what a source says
(``PATTERNS``), its structure where it parses as Python (loops in plain and in compiled functions, sizes of the tensors its
``get_inputs`` makes), and a TF-IDF of its tokens projected to a few dimensions, fitted on training sources alone. A pair's
features are those of both sources and their difference. Variants, packs and kernel names are not looked at.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from kfs.data.clean import clean_source, strip_cpp_comments
from kfs.forecast.query import Query, languages
from kfs.records import Pair

WORD = re.compile(r"[A-Za-z_]\w+|\d+(?:\.\d+)?")
COMPILERS = re.compile(r"njit|jit|guvectorize|vectorize|compile|script")

PATTERNS = {
    # libraries and compilers
    "torch": r"\btorch\.",
    "functional": r"\bF\.\w+\(|nn\.functional",
    "modules": r"\bnn\.[A-Z]\w+\(",
    "numpy": r"\bnp\.|\.numpy\(",
    "numba": r"\bnjit\b|\bnumba\b|prange",
    "parallel": r"parallel=True|prange",
    "fastmath": r"fastmath=True|FASTMATH = True|use_fast_math",
    "script": r"jit\.(script|trace)",
    "compile": r"torch\.compile",
    "inline_cuda": r"load_inline|cpp_extension",
    "triton": r"\btl\.|@triton",
    # CUDA C++ and Triton
    "global_kernels": r"__global__",
    "launches": r"<<<|\[grid",
    "shared_memory": r"__shared__",
    "barriers": r"__syncthreads|debug_barrier",
    "shuffles": r"__shfl|tl\.reduce|warpReduce",
    "vector_loads": r"float4|float2|half2|int4\b",
    "restrict": r"__restrict__|__ldg",
    "unroll": r"#pragma unroll|static_range",
    "atomics": r"atomicAdd|atomic_add",
    # graphs, streams, flags
    "graph": r"CUDAGraph|cuda\.graph\(|graph\.replay",
    "stream": r"cuda\.(Stream|stream|current_stream)",
    "synchronize": r"synchronize\(",
    "cudnn_flags": r"cudnn\.flags",
    "cudnn_settings": r"backends\.cudnn\.\w+ =",
    "benchmark": r"benchmark ?= ?True",
    "tf32": r"allow_tf32 ?= ?True|float32_matmul_precision",
    "autocast": r"autocast|\.half\(\)|float16|bfloat16",
    "channels_last": r"channels_last",
    "no_grad": r"no_grad|inference_mode",
    "cached": r"hasattr\(|is None|_cache|cached",
    "data_ptr": r"data_ptr\(",
    # what is computed, and how many times memory is passed over
    "matmul": r"matmul\(|\bmm\(|bmm\(| @ |\.dot\(|einsum|nn\.Linear|F\.linear|addmm",
    "convolution": r"[cC]onv(_transpose|Transpose)?\d?d",
    "pooling": r"[pP]ool\d?d?",
    "normalisation": r"[bB]atch_?[nN]orm|[lL]ayer_?[nN]orm|[gG]roup_?[nN]orm|[iI]nstance_?[nN]orm|rms_?norm",
    "activation": r"[rR]e[lL][uU]|[gG][eE][lL][uU]|sigmoid|Sigmoid|tanh|Tanh|[sS]wish|[mM]ish|clamp|[hH]ardtanh",
    "softmax": r"[sS]oftmax|logsumexp",
    "attention": r"scaled_dot_product|[aA]ttention",
    "recurrent": r"\b(LSTM|GRU|RNN)\b",
    "loss": r"[lL]oss\b|cross_entropy",
    "reduction": r"\b(sum|mean|amax|max|min|argmax|norm|var|std|prod)\(",
    "scan": r"cumsum|cumprod|accumulate\(",
    "exponentials": r"\b(exp|exp2|log|log2|sqrt|rsqrt|tanh|pow|erf)\w*\(",
    "elementwise": r" [-+*/] ",
    "inplace": r"\w_\(|inplace=True|[-+*/]= |out=",
    "fused": r"addcmul|addcdiv|baddbmm|addmm|lerp|fused",
    "allocation": r"\b(empty|zeros|ones|full|randn|rand)(_like)?\(",
    "copies": r"clone\(|copy_?\(|contiguous\(|astype\(|\.to\(|\.float\(|np\.array\(|ascontiguousarray|torch\.cat|stack\(",
    "strided": r"transpose\(|permute\(|\.T\b|\.mT\b|swapaxes|moveaxis|flip\(",
    "views": r"view\(|reshape\(|unsqueeze\(|squeeze\(|expand\(|flatten\(",
    "gathers": r"gather|scatter|index_select|take_along|where\(|masked_fill",
    "triangular": r"tril|triu|diag\(",
    "float64": r"float64|double",
    "int_casts": r"int8|int32|int64|\.long\(",
    "to_python": r"tolist\(|\.item\(|float\(|range\(",
    "vectorised_slices": r"\[:|: ?\]|\.\.\.",
    "state_dict": r"register_buffer|nn\.Parameter",
    "fallback": r"\btry:|except",
    "device": r"is_cuda|\.cuda\(|device=",
}
_COMPILED = [re.compile(p) for p in PATTERNS.values()]


@lru_cache(maxsize=50_000)
def plain_text(source: str, language: str = "python") -> str:
    """Source without comments, docstrings and marker names: all that any feature sees."""
    return clean_source(source) if language in ("python", "triton") else strip_cpp_comments(source)


STRUCTURE = (
    "characters",
    "lines",
    "parses",
    "functions",
    "classes",
    "calls",
    "branches",
    "plain_loops",
    "plain_depth",
    "calls_in_plain_loops",
    "compiled_loops",
    "compiled_depth",
    "operations_in_compiled_loops",
    "subscripts",
    "forward_calls",
    "forward_statements",
    "input_log2_elements",
    "largest_log2_input",
    "n_inputs",
    "largest_log2_constant",
    "log2_init_product",
)


@lru_cache(maxsize=50_000)
def source_features(source: str, language: str = "python") -> np.ndarray:
    """Counts (log1p) and structure of one source, float64 of shape ``(len(PATTERNS) + len(STRUCTURE),)``.

    Depends on the text alone: the same source gives the same row whatever it is called.
    """
    text = plain_text(source, language)
    counts = [math.log1p(len(p.findall(text))) for p in _COMPILED]
    row = np.array(counts + list(_structure(text)), dtype=float)
    row.setflags(write=False)
    return row


def _structure(text: str) -> list[float]:
    values = dict.fromkeys(STRUCTURE, 0.0)
    values["characters"], values["lines"] = math.log2(len(text) + 1), math.log2(text.count("\n") + 1)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return list(values.values())
    values["parses"] = 1.0
    _walk(tree, values, depth=0, compiled=False)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "kernel"):
            values["forward_calls"] += sum(isinstance(n, ast.Call) for n in ast.walk(node))
            values["forward_statements"] += sum(isinstance(n, ast.stmt) for n in ast.walk(node))
    for name in STRUCTURE[3:16]:
        if "depth" not in name:
            values[name] = math.log1p(values[name])
    values.update(_sizes(tree))
    return list(values.values())


def _walk(node: ast.AST, values: dict[str, float], depth: int, compiled: bool) -> None:
    """Count statements, telling loops that Python runs from loops that a compiler sees."""
    for child in ast.iter_child_nodes(node):
        inner, inside = depth, compiled
        if isinstance(child, ast.FunctionDef):
            values["functions"] += 1
            inner, inside = 0, any(COMPILERS.search(ast.unparse(d)) for d in child.decorator_list)
        elif isinstance(child, ast.ClassDef):
            values["classes"] += 1
        elif isinstance(child, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)):
            inner = depth + 1
            kind = "compiled" if compiled else "plain"
            values[f"{kind}_loops"] += 1
            values[f"{kind}_depth"] = max(values[f"{kind}_depth"], inner)
        elif isinstance(child, ast.Call):
            values["calls"] += 1
            values["calls_in_plain_loops"] += 0 if compiled else depth
        elif isinstance(child, (ast.If, ast.IfExp)):
            values["branches"] += 1
        elif isinstance(child, ast.Subscript):
            values["subscripts"] += 1
        if compiled and depth and isinstance(child, (ast.BinOp, ast.Call, ast.Subscript)):
            values["operations_in_compiled_loops"] += depth
        _walk(child, values, inner, inside)


def _sizes(tree: ast.Module) -> dict[str, float]:
    """Sizes of a module that makes its own inputs, from its top-level constants and ``get_inputs``."""
    constants: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            value = _literal(node.value, constants)
            names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            parts = value if isinstance(node.targets[0], ast.Tuple) and isinstance(value, (tuple, list)) else [value] * len(names)
            constants.update({n.id: v for n, v in zip(names, parts, strict=False) if isinstance(n, ast.Name) and v is not None})
    inputs, product = [], 0.0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and re.search(r"rand|zeros|ones|empty|full", ast.unparse(call.func)):
                    numbers = [n for a in call.args for n in _numbers(_literal(a, constants))]
                    inputs.append(sum(math.log2(n) for n in numbers if n >= 1))
        elif isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            for leaf in ast.walk(node):
                if isinstance(leaf, ast.Return) and leaf.value is not None:
                    numbers = list(_numbers(_literal(leaf.value, constants)))
                    product = sum(math.log2(n) for n in numbers if n >= 1)
    largest = max((n for v in constants.values() for n in _numbers(v)), default=0)
    return {
        "input_log2_elements": math.log2(sum(2.0 ** min(x, 60) for x in inputs) + 1),
        "largest_log2_input": max(inputs, default=0.0),
        "n_inputs": float(len(inputs)),
        "largest_log2_constant": math.log2(largest) if largest >= 1 else 0.0,
        "log2_init_product": product,
    }


def _literal(node: ast.AST, names: dict[str, object]) -> object:
    """Value of a constant expression over known names; None where it is not one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, (ast.Tuple, ast.List)):
        return [_literal(e.value if isinstance(e, ast.Starred) else e, names) for e in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _literal(node.left, names), _literal(node.right, names)
        operators = {ast.Mult: lambda a, b: a * b, ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b}
        operators[ast.FloorDiv] = lambda a, b: a // b if b else None
        if isinstance(left, (int, float)) and isinstance(right, (int, float)) and type(node.op) in operators:
            return operators[type(node.op)](left, right)
    return None


def _numbers(value: object) -> Iterator[float]:
    """Every positive number of a possibly nested value."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        yield float(value)


class TokenSpace:
    """TF-IDF of a source's tokens and token pairs, projected to a few dimensions. Fitted on training sources alone."""

    def __init__(self, n_components: int):
        self.n_components = n_components

    def fit(self, sources: Sequence[tuple[str, str]]) -> TokenSpace:
        """Fit on distinct (source, language) texts."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = [plain_text(*s) for s in sources]
        self._vectoriser = TfidfVectorizer(
            tokenizer=WORD.findall,
            token_pattern=None,
            lowercase=False,
            sublinear_tf=True,
            ngram_range=(1, 2),
            min_df=min(3, len(texts)),
            max_features=20_000,
        )
        matrix = self._vectoriser.fit_transform(texts)
        self._svd = TruncatedSVD(max(1, min(self.n_components, min(matrix.shape) - 1)), random_state=0).fit(matrix)
        return self

    def transform(self, sources: Sequence[tuple[str, str]]) -> np.ndarray:
        """Coordinates of sources, shape (n, at most n_components)."""
        return self._svd.transform(self._vectoriser.transform([plain_text(*s) for s in sources]))


class FeatureSpace:
    """Features of pairs, or of one side of them: fitted on training pairs, then the same columns for any query.

    Reads sources, language and hardware; nothing else of a pair or query.
    """

    def __init__(self, side: Literal["both", "anchor", "candidate"], n_components: int):
        self.side, self.tokens = side, TokenSpace(n_components)

    def fit(self, pairs: Sequence[Pair]) -> FeatureSpace:
        """Learn the token space and the list of processors."""
        self.tokens.fit(sorted(set(self._sources(pairs))))
        self._hardware = sorted({p.hardware for p in pairs})
        return self

    def transform(self, items: Sequence[Pair | Query], *, swapped: bool = False) -> np.ndarray:
        """One row a pair or query, float32; ``swapped`` exchanges anchor and candidate."""
        distinct = sorted(set(self._sources(items)))
        row = {s: i for i, s in enumerate(distinct)}
        coordinates = self.tokens.transform(distinct)
        table = np.hstack([np.array([source_features(*s) for s in distinct]), coordinates])
        columns = []
        if self.side != "candidate":
            anchor = np.array([row[i.anchor_code, languages(i)["anchor_code"]] for i in items])
            columns.append(table[anchor])
        if self.side != "anchor":
            candidate = np.array([row[i.candidate_code, i.language] for i in items])
            columns.append(table[candidate])
        if self.side == "both":
            if swapped:
                columns.reverse()
            unit = coordinates / np.maximum(np.linalg.norm(coordinates, axis=1, keepdims=True), 1e-12)
            columns += [columns[1] - columns[0], (unit[anchor] * unit[candidate]).sum(axis=1, keepdims=True)]
        columns.append(np.array([[i.hardware == h for h in self._hardware] for i in items], dtype=float))
        return np.hstack(columns).astype(np.float32)

    def _sources(self, items: Sequence[Pair | Query]) -> list[tuple[str, str]]:
        sides = {"anchor": ("anchor_code",), "candidate": ("candidate_code",), "both": ("anchor_code", "candidate_code")}[
            self.side
        ]
        return [(getattr(i, side), languages(i)[side]) for i in items for side in sides]
