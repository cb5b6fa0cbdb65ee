"""What a CUDA C++ source declares in its leading comments: sizes, shapes, launches, and words for everything else."""

import pytest

from kfs.bench.launch import BoundTensor, LaunchError, evaluate, parse_launch

HEAD = """\
// Softmax of rows, in two steps.
// inputs: x[R, C], w[C]
// outputs: y[R, C] float32
// scratch: partial[R, TILES] float32
// let: TILES = cdiv(C, 256)
// launch: parts grid=(TILES, R) block=(256,) shared=4 * C args=(x, w, partial, R, C + 1)
// launch: whole grid=(R,) block=(32, 4) args=(partial, y, R, 1e-6, -0.5)
"""
CODE = '\nextern "C" __global__ void parts() {}\n'


def test_sizes_shapes_and_launches_follow_from_the_inputs():
    program = parse_launch(HEAD + CODE)
    sizes = program.bind([(6, 1000), (1000,)])
    assert sizes == {"R": 6, "C": 1000, "TILES": 4}
    assert program.tensors("outputs", sizes) == [BoundTensor("y", (6, 1000), "float32")]
    assert program.tensors("scratch", sizes) == [BoundTensor("partial", (6, 4), "float32")]
    parts, whole = program.plan(sizes)
    assert (parts.entry, parts.grid, parts.block, parts.shared) == ("parts", (4, 6, 1), (256, 1, 1), 4000)
    assert parts.args == ("x", "w", "partial", 6, 1001)
    assert (whole.block, whole.threads, whole.shared, whole.args) == ((32, 4, 1), 128, 0, ("partial", "y", 6, 1e-6, -0.5))


def test_integer_defines_are_names_so_that_variants_can_size_a_launch():
    tensors = "// inputs: x[N]\n// outputs: y[N] int32\n"
    program = parse_launch(f"#define BLOCK 64\n{tensors}// launch: f grid=(cdiv(N, BLOCK),) block=(BLOCK,) args=(x, y)\n")
    assert program.plan(program.bind([(100,)]))[0].grid == (2, 1, 1)


def test_numbers_and_expressions_in_an_input_must_hold():
    program = parse_launch(
        "// inputs: x[2*K, 3], y[K]\n// outputs: z[K] float16\n// launch: f grid=(K,) block=(1,) args=(x, y, z)\n"
    )
    assert program.bind([(8, 3), (4,)])["K"] == 4
    with pytest.raises(LaunchError, match=r"line 1: input 'x' has size 9 where 2\*K = 8 is declared"):
        program.bind([(9, 3), (4,)])
    with pytest.raises(LaunchError, match="size 5 where 3 = 3"):
        program.bind([(8, 5), (4,)])


BAD_SHAPES = {
    "too few inputs": ([(6, 1000)], "1 inputs given, the source declares 2 (x, w)"),
    "other rank": ([(6,), (6,)], "line 2: input 'x' has shape (6,), declared [R, C]"),
    "a name with two values": ([(6, 1000), (6,)], "line 2: input 'w' has C = 6, but C is 1000 already"),
}


@pytest.mark.parametrize("name", BAD_SHAPES)
def test_inputs_that_do_not_fit_are_named(name):
    shapes, message = BAD_SHAPES[name]
    with pytest.raises(LaunchError) as caught:
        parse_launch(HEAD + CODE).bind(shapes)
    assert message in str(caught.value)


BAD_SOURCES = {
    "nothing declared": (CODE, "no '// inputs:' line before the first line of code"),
    "declared after code": (CODE + HEAD, "no '// inputs:' line"),
    "no output type": (HEAD.replace("y[R, C] float32", "y[R, C]"), "line 3: 'y' needs a type after its brackets: float32"),
    "unknown type": (HEAD.replace("y[R, C] float32", "y[R, C] float12"), "line 3: unknown type 'float12' of 'y'"),
    "no brackets": (HEAD.replace("w[C]", "w"), "line 2: found 'w' in '// inputs:'"),
    "twice": (HEAD.replace("w[C]", "x[C]"), "tensor 'x' is declared twice"),
    "no grid": (HEAD.replace("grid=(R,)", ""), "line 7: launch of 'whole' lacks grid"),
    "unknown key": (HEAD.replace("shared=", "stream="), "line 6: 'stream' in the launch of 'parts' is unknown"),
    "four dimensions": (HEAD.replace("(32, 4)", "(1, 1, 1, 1)"), "has 4 numbers"),
    "args without parentheses": (HEAD.replace("args=(x, w, partial, R, C + 1)", "args=x"), "write args=(...)"),
    "let without value": (HEAD.replace("TILES = cdiv(C, 256)", "TILES"), "line 5: found 'TILES' in '// let:'"),
    "a very long line": (HEAD.replace("(32, 4)", "(" + "1+" * 400 + "1,)"), "at most 500 characters"),
}


@pytest.mark.parametrize("name", BAD_SOURCES)
def test_a_wrong_head_is_named_with_its_line(name):
    source, message = BAD_SOURCES[name]
    with pytest.raises(LaunchError) as caught:
        parse_launch(source)
    assert message in str(caught.value)


BAD_NUMBERS = {
    "too many threads": (("(32, 4)", "(64, 32)"), "at most 1024 threads"),
    "no blocks": (("grid=(R,)", "grid=(R - 6,)"), "line 7: launch of 'whole': grid (0, 1, 1)"),
    "negative shared": (("4 * C", "0 - C"), "shared=-1000 bytes"),
    "an int that does not fit": (("C + 1", "C * 3000000"), "does not fit a 32-bit int"),
    "an unknown name": (("C + 1", "Q + 1"), "unknown name 'Q'; known: C, R, TILES"),
    "division by zero": (("C + 1", "C // (R - 6)"), "division by zero"),
    "a call": (("C + 1", "open(C)"), "'open(C)' is not allowed"),
    "an attribute": (("C + 1", "C.real"), "'C.real' is not allowed"),
    "a power": (("C + 1", "9**9**9"), "is not allowed"),
    "a huge product": (("C + 1", "*".join(["C"] * 30)), "larger than 2**62"),
    "a true division": (("C + 1", "C / 2"), "is not allowed"),
    "cdiv of one": (("C + 1", "cdiv(C)"), "cdiv takes two values"),
    "no expression": (("C + 1", "C +"), "is not an expression"),
}


@pytest.mark.parametrize("name", BAD_NUMBERS)
def test_numbers_a_gpu_would_refuse_are_named(name):
    (old, new), message = BAD_NUMBERS[name]
    program = parse_launch(HEAD.replace(old, new) + CODE)
    with pytest.raises(LaunchError) as caught:
        program.plan(program.bind([(6, 1000), (1000,)]))
    assert message in str(caught.value)


def test_a_declared_input_type_is_checked_and_a_let_cannot_shadow_a_size():
    program = parse_launch("// inputs: x[N] bfloat16\n// outputs: y[N] float32\n// launch: f grid=(N,) block=(1,) args=(x, y)\n")
    assert program.bind([(3,)], ["bfloat16"]) == {"N": 3}
    with pytest.raises(LaunchError, match="input 'x' is float32, declared bfloat16"):
        program.bind([(3,)], ["float32"])
    shadow = parse_launch(
        "// inputs: x[N]\n// outputs: y[N] float32\n// let: N = 3\n// launch: f grid=(N,) block=(1,) args=(x, y)\n"
    )
    with pytest.raises(LaunchError, match="let 'N' is 5 already"):
        shadow.bind([(5,)])


def test_cdiv_rounds_up_and_minus_binds_as_in_python():
    assert evaluate("cdiv(7, 2) + min(3, -1, max(4, 9)) - 7 % 4 * 2", {}) == 4 - 1 - 6
