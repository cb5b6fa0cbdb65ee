"""Cleaning sources: what goes, what stays, and that code still means what it did."""

import ast
import os
import re
from collections import Counter

import pytest

from kfs.data import cuda_l1
from kfs.data.clean import clean_source, strip_cpp_comments

WHOLE_MIRROR = os.environ.get("KFS_MIRROR")
CLAIM = re.compile(
    "custom(i[sz]ed)?|fast(er|est)?|efficient(ly)?|(un)?optimi[sz]ed|improved|enhanced|accelerated|advanced|opt", re.IGNORECASE
)
LIBRARY_NAMES = {"use_fast_math", "enable_mem_efficient", "enable_mem_efficient_sdp", "optimized_execution"}


def claiming_names(source):
    """Names in a source, Python or C++, with a part that claims something; those of libraries aside."""
    parts = {name: re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name) for name in re.findall(r"\\.|\w+", source)}
    return {name for name, p in parts.items() if name not in LIBRARY_NAMES and any(map(CLAIM.fullmatch, p))}


def node_counts(source):
    """How many nodes of each kind, those that docstrings come and go with aside; None if the source does not parse."""
    try:
        kinds = Counter(type(node).__name__ for node in ast.walk(ast.parse(source)))
    except SyntaxError:
        return None
    return {kind: n for kind, n in kinds.items() if kind not in ("Expr", "Constant", "Pass")}


def check_cleaned(rows):
    for source in {source for row in rows for source in row.sources.values()}:
        once = clean_source(source)
        assert clean_source(once) == once
        assert "ModelNew" not in once and not claiming_names(once)
        assert node_counts(once) == node_counts(source)


CUSTOM = '''# Optimized version
import torch
from torch.utils.cpp_extension import load_inline

URL = "https://example.org/#anchor"  # a link
cuda_source = """
// fast kernel
#include <torch/extension.h>
/* block
   comment */
__global__ void optimized_scale(float* x, int n) {
    int i = blockIdx.x; // index
    const char* u = "http://not//a comment";
    if (i < n / 2) x[i] *= 2.0f; /* inline */ else x[i] = 0;
}
"""


class OptimizedConv2d(torch.nn.Module):
    """Docstring only."""


class ModelNew(torch.nn.Module):
    """
    Optimized model.
    """

    def __init__(self):
        super(ModelNew, self).__init__()
        "a stray string"
        self.n = 17 // 2  # floor division
        self.graph = torch.cuda.CUDAGraph()

    def _optimized_forward(self, x):
        with torch.jit.optimized_execution(True):
            return x

    def forward(self, x):
        # call it
        text = "# not a comment"

        # spaced


        return self._optimized_forward(x), OptimizedConv2d, text
'''


def test_comments_docstrings_and_markers_go():
    cleaned = clean_source(CUSTOM)
    for gone in (
        "version",
        "Docstring",
        "stray",
        "fast kernel",
        "block\n",
        "index",
        "inline */",
        "ModelNew",
        "a link",
        "call it",
    ):
        assert gone not in cleaned, gone
    assert "optimized" not in cleaned.replace("optimized_execution", "").lower()


def test_code_strings_urls_and_floor_divisions_stay():
    cleaned = clean_source(CUSTOM)
    for kept in (
        '"https://example.org/#anchor"',
        '"http://not//a comment"',
        "17 // 2",
        '"# not a comment"',
        "#include <torch/extension.h>",
        "torch.cuda.CUDAGraph()",
        "torch.jit.optimized_execution(True)",
        "x[i] *= 2.0f;",
    ):
        assert kept in cleaned, kept


def test_a_class_of_nothing_but_a_docstring_still_parses():
    assert "class Conv2d(torch.nn.Module):\n    pass" in clean_source(CUSTOM)


def test_renaming_is_consistent_between_definition_and_use():
    cleaned = clean_source(CUSTOM)
    assert "super(Model, self)" in cleaned
    assert "def _forward(self, x)" in cleaned and "self._forward(x)" in cleaned


@pytest.mark.parametrize(
    "source",
    [
        CUSTOM,
        "x = 1; 'text'\n",
        "'text'; x = 1\n",
        "def f(): 'doc'\n",
        "def f():\n    'doc'; return 1\n",
        "class A:\n    'doc'\n    'more'\n",
        "try:\n    'a'\nexcept E:\n    'b'\nelse:\n    'c'\nfinally:\n    'd'\n",
        "match x:\n    case 1:\n        'only'\n",
        "x = '''a # b\n\n\n\n c'''  # d\ny = r'\\'  + rb'#'\n",
        "s = f'{x!r:>{w}} # {y}'  # no\n",
        "'öö'; é = 'ü'  # ö\n'ß'\n",
        "if x:\n    # only a comment\n    pass\n# end",
    ],
)
def test_cleaning_keeps_code_parseable_and_cleaning_twice_changes_nothing(source):
    once = clean_source(source)
    ast.parse(once)
    assert clean_source(once) == once


def test_cleaning_changes_nothing_but_comments_docstrings_and_layout():
    source = "def f(a, *, b=2):\n    'doc'\n    # c\n    return [a,  # first\n            b // 2, '#']\n"
    assert ast.dump(ast.parse(clean_source(source))) == ast.dump(ast.parse("def f(a, *, b=2):\n    return [a, b // 2, '#']"))


def test_a_class_already_called_model_makes_room_for_the_renamed_one():
    cleaned = clean_source("class Model: pass\nclass ModelNew:\n    inner = Model\n")
    assert cleaned == "class InnerModel: pass\nclass Model:\n    inner = InnerModel\n"


def test_a_renamed_name_never_takes_one_in_use():
    assert clean_source("x = 1\nx_optimized = x + 1\n") == "x = 1\nx_2 = x + 1\n"


def test_source_that_does_not_parse_loses_comments_or_raises_where_asked():
    source = "x = 1  # note\ny = '''open\n"
    assert "note" not in clean_source(source)
    with pytest.raises(SyntaxError):
        clean_source(source, must_parse=True)


def test_cpp_comments_end_where_they_end():
    assert strip_cpp_comments('a(); // don\'t "quote\nb(\'/\'); /* " */ c("/*");') == "a();\nb('/');   c(\"/*\");"


def test_strings_that_hold_no_cpp_are_left_alone():
    source = 'note = """\nsee // this\n/* and that */\n"""\n'
    assert clean_source(source) == source


@pytest.mark.parametrize(
    ("source", "cleaned"),
    [
        ("use_custom_kernel = True\nif use_custom_kernel: pass\n", "use_kernel = True\nif use_kernel: pass\n"),
        ("class CustomTransformerLayer: pass\n", "class TransformerLayer: pass\n"),
        ("class CustomLinear(nn.Linear): pass\n", "class Linear_2(nn.Linear): pass\n"),
        ("fastest_impl, _fast_bmm, breakfast = 1, 2, 3\n", "impl, _bmm, breakfast = 1, 2, 3\n"),
        ("FAST_EXP = fastGelu = Gelu_efficient\n", "EXP = Gelu_2 = Gelu\n"),
        ("x_opt = opt.step(opt_level)\n", "x = opt.step(opt_level)\n"),
        ("f(functions=['fast_bmm'], s='a\\nfast_bmm()')\n", "f(functions=['bmm'], s='a\\nbmm()')\n"),
        ('print(f"Custom kernel {custom if a else b} failed")\n', 'print(f"kernel {impl if a else b} failed")\n'),
    ],
)
def test_names_and_messages_lose_what_tells_the_variant(source, cleaned):
    assert clean_source(source) == cleaned


def test_a_name_is_the_same_in_python_and_in_cpp_and_takes_no_name_of_the_math_library():
    source = 's = """\n__device__ float fast_exp(float x) { return __expf(x); }\n"""\nload(s, ["fast_exp"])\n'
    assert clean_source(source) == source.replace("fast_exp", "exp_2")


@pytest.mark.parametrize(
    "name",
    [
        "use_fast_math",
        "fast_math",
        "fastmath",
        "FASTMATH",
        "__FAST_MATH__",
        "__expf",
        "fast_expf",
        "custom_op",
        "custom_fwd",
        "enable_mem_efficient_sdp",
        "CUBLAS_COMPUTE_32F_FAST_TF32",
        "SDPBackend.EFFICIENT_ATTENTION",
        "EfficientNetB0",
        "BertTokenizerFast",
        "coefficient",
        "fused_bias_relu",
        "compiled_forward",
        "optimize_for_inference",
    ],
)
def test_names_of_libraries_and_names_that_say_what_is_computed_stay(name):
    source = f"f({name}, torch.{name}, '--{name}')\n"
    assert clean_source(source) == source


@pytest.mark.parametrize("source", ["\0", "x = 1\0  # note\n", "'\ud800'\nx = 1  # note\n", "-" * 10_000 + "1  # note\n"])
def test_whatever_text_a_source_is_cleaning_gives_text(source):
    once = clean_source(source)
    assert clean_source(once) == once and "\0" not in once and "note" not in once


def test_line_ends_of_any_system_give_the_same():
    source = "'doc'\nx = 1\n'stray'\ny = 2\n"
    assert {clean_source(source.replace("\n", end)) for end in ("\n", "\r\n", "\r")} == {"x = 1\ny = 2\n"}


def test_no_name_in_the_excerpt_tells_the_variant_and_cleaning_it_is_idempotent_and_keeps_its_structure(excerpts):
    check_cleaned(row for gpu in ("a100", "h100") for row in cuda_l1.read_rows(excerpts / f"cuda_l1/{gpu}.json"))


@pytest.mark.skipif(not WHOLE_MIRROR, reason="KFS_MIRROR is not set; set it to a folder with the whole files")
def test_no_name_in_the_whole_data_tells_the_variant_and_cleaning_it_is_idempotent_and_keeps_its_structure(monkeypatch):
    monkeypatch.setenv("KFS_MIRROR", WHOLE_MIRROR)
    check_cleaned(cuda_l1.load_rows())
