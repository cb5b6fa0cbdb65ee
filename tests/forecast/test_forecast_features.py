import numpy as np
import pytest

from kfs.forecast.features import PATTERNS, STRUCTURE, plain_text, source_features
from kfs.forecast.trees import best_temperature, sharpen

NAMES = [*PATTERNS, *STRUCTURE]

COMPILED = """
import torch
from numba import njit

@njit(parallel=True)
def rows(x, out):
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[r, c] = x[r, c] * 2.0

def kernel(x):
    for i in range(3):
        x = torch.relu(x)
    return x
"""

MODULE = """
import torch
batch, (h, w) = 4, (8, 8)
channels = 2 * 8
def get_inputs():
    return [torch.randn(batch, channels, h, w)]
def get_init_inputs():
    return [channels, channels]
"""


def feature(source, name, language="python"):
    return source_features(source, language)[NAMES.index(name)]


def test_loops_that_python_runs_are_told_from_loops_a_compiler_sees():
    assert feature(COMPILED, "compiled_depth") == 2
    assert feature(COMPILED, "plain_depth") == 1
    assert feature(COMPILED, "compiled_loops") == pytest.approx(np.log1p(2))
    assert feature(COMPILED, "calls_in_plain_loops") == pytest.approx(np.log1p(2))  # range and relu


def test_sizes_come_from_top_level_constants():
    source = MODULE.replace("batch, (h, w) = 4, (8, 8)", "batch = 4\nh, w = 8, 8")
    assert feature(source, "largest_log2_input") == pytest.approx(np.log2(4 * 16 * 8 * 8))
    assert feature(source, "log2_init_product") == pytest.approx(8)
    assert feature(MODULE, "n_inputs") == 1


@pytest.mark.parametrize("source", ["", "def kernel(x:\n", "if True:\n\tx\n        y\n", "x = '''open", "\x00", "]" * 50])
def test_text_that_is_not_python_still_gives_finite_features(source):
    assert np.isfinite(source_features(source)).all()


def test_cuda_sources_lose_their_comments_and_keep_their_counts():
    source = "// __shared__ everywhere\n__global__ void f(float* x) { /* float4 */ __syncthreads(); }\n"
    assert "shared" not in plain_text(source, "cuda")
    assert feature(source, "vector_loads", "cuda") == 0
    assert feature(source, "barriers", "cuda") == pytest.approx(np.log1p(1))


def test_the_best_temperature_undoes_a_known_one(rng):
    p = rng.dirichlet(np.ones(8), 4000)
    bins = np.array([rng.choice(8, p=row) for row in p]) + 1
    assert best_temperature(sharpen(p, 0.5), bins) == pytest.approx(2, rel=0.1)
    assert best_temperature(p[:0], bins[:0]) == 1
