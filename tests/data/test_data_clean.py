"""Cleaning sources: what goes, what stays, and that code still means what it did."""

import ast
import json

import pytest

from kfs.data.clean import clean_source, strip_cpp_comments

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


def test_every_source_of_the_excerpt_is_cleaned_idempotently_and_without_markers(excerpts):
    for line in (excerpts / "cuda_l1/a100.json").read_text().splitlines():
        row = json.loads(line)
        for column in ("ref_code", "custom_code", "cuda_graph_code", "cudnn_code"):
            source = row[column]
            if source in (None, "None"):
                continue
            once = clean_source(source)
            assert clean_source(once) == once
            assert "ModelNew" not in once and "Optimized" not in once
            code_before = [type(n).__name__ for n in ast.walk(ast.parse(source))] if row["task_id"] != 26 else []
            if code_before:
                assert {"ClassDef", "FunctionDef"} <= {type(n).__name__ for n in ast.walk(ast.parse(once))}
