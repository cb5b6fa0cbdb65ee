"""Small programs in which renaming is treacherous; ``kernel(5.0)`` must give the same before and after. For test_disguise."""

CASES: dict[str, str] = {}
CASES["getattr f-string"] = """
class M:
    def __init__(self):
        self.w0 = 2; self.w1 = 3
    def go(self, x):
        return sum(getattr(self, f"w{i}") * x for i in range(2))
def kernel(x): return M().go(x)
"""
CASES["named in substring"] = """
import torch
from torch import nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.Linear(2,2)
        for name, p in self.named_parameters():
            if "norm" in name: nn.init.ones_(p)
            else: nn.init.zeros_(p)
    def forward(self, x): return self.norm1(x)
def kernel(x): return M()(torch.full((1,2),x)).tolist()
"""
CASES["state_dict key"] = """
import torch
from torch import nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2,2)
        nn.init.ones_(self.state_dict()["fc.weight"]); nn.init.ones_(self.state_dict()["fc.bias"])
    def forward(self, x): return self.fc(x)
def kernel(x): return M()(torch.full((1,2),x)).tolist()
"""
CASES["inherited attr weight"] = """
import torch
from torch import nn
class M(nn.Linear):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(2,2)
        self.weight = nn.Parameter(torch.ones(2,2)); self.bias = None
    def forward(self, x): return super().forward(x)
def kernel(x): return M()(torch.full((1,2),x)).tolist()
"""
CASES["inherited eps"] = """
import torch
from torch import nn
class M(nn.LayerNorm):
    def __init__(self):
        super().__init__(2)
        self.eps = 10.0
def kernel(x): return M()(torch.tensor([[x, 2*x]])).tolist()
"""
CASES["training"] = """
import torch
from torch import nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.training = False
    def forward(self, x): return nn.functional.dropout(x, 1.0, self.training)
def kernel(x):
    m = M(); m.train(); return m(torch.full((1,2),x)).tolist()
"""
CASES["_conv_forward override"] = """
import torch
from torch import nn
class M(nn.Conv1d):
    def _conv_forward(self, input, weight, bias):
        return input * 7
def kernel(x): return M(1,1,1)(torch.full((1,1,2),x)).tolist()
"""
CASES["private in class decorator"] = """
class A:
    def _wrap(f):
        return lambda self, x: f(self, x) + 1
    @_wrap
    def go(self, x): return x
def kernel(x): return A().go(x)
"""
CASES["property(_get,_set)"] = """
class A:
    def _read(self): return self.v
    def _write(self, v): self.v = v
    p = property(_read, _write)
def kernel(x):
    a = A(); a.p = x; return a.p
"""
CASES["private property setter"] = """
class A:
    @property
    def _p(self): return self.v
    @_p.setter
    def _p(self, v): self.v = v
    def go(self, x):
        self._p = x
        return self._p
def kernel(x): return A().go(x)
"""
CASES["def in if in class"] = """
class A:
    if True:
        def fast(self, x): return x
    def go(self, x): return self.fast(x)
def kernel(x): return A().go(x)
"""
CASES["match class kw"] = """
class P:
    def __init__(self, v): self.v0 = v
def kernel(x):
    match P(x):
        case P(v0=5.0): return 1
        case _: return 2
"""
CASES["star import"] = """
from math import *
def other(x):
    e = 3
    return x * e
def kernel(x): return other(x) * e
"""
CASES["format attr"] = """
class A:
    def __init__(self): self.block = 4
    def src(self): return "n = {self.block}".format(self=self)
def kernel(x): return A().src()
"""
CASES["attrgetter dotted"] = """
from operator import attrgetter
class A:
    def __init__(self): self.inner0 = 3+0j
    def go(self): return attrgetter("inner0.real")(self)
def kernel(x): return A().go()
"""
CASES["doc used"] = '''
def src():
    """__global__ void k() {}"""
def kernel(x): return src.__doc__
'''
CASES["micro sign"] = """
def kernel(x):
    \u00b5 = 0.5
    return x * \u00b5
"""
CASES["modules attr"] = """
import sys, types
def helper(x): return x+1
def kernel(x):
    return kernel.__globals__["hel" "per"](x)
"""
CASES["type name"] = """
class Foo: pass
def kernel(x): return type(Foo()).__name__
"""
CASES["fstring cpp"] = '''
BLOCK = 128
src = f"""
__global__ void k(float* x, int n) {{
  int i = blockIdx.x * {BLOCK} + threadIdx.x;
  if (i < n) x[i] = 1.f;
}}
"""
def kernel(x): return src.count("threadIdx")
'''
CASES["fstring cpp no holes"] = '''
src = f"""
__global__ void k(float* x, int n) {{ x[0] = 1.f; }}
"""
def kernel(x): return "threadIdx" in src or "{{" in src
'''
CASES["format cpp"] = '''
src = """
__global__ void k(float* x, int total) {{
  const int tile = {tile};
  x[tile] = 1.f;
}}
"""
def kernel(x): return src.format(tile=4).count("= 4")
'''
CASES["percent cpp"] = '''
src = """
__global__ void k(float* x, int total) {
  const int tile = %(tile)d;
  x[tile] = 1.f;
}
"""
def kernel(x): return (src % dict(tile=4)).count("= 4")
'''
CASES["replace cpp"] = '''
src = """
__global__ void k(float* x, int total) {
  float acc = 0.f;
  x[0] = acc;
}
"""
def kernel(x): return src.replace("float acc", "double acc").count("double")
'''
CASES["class attr dict update"] = """
class A:
    def __init__(self, **kw):
        self.alpha = 1
        self.__dict__.update(kw)
    def go(self): return self.alpha
def kernel(x): return A(alpha=x).go()
"""
CASES["namedtuple asdict"] = """
from collections import namedtuple
P = namedtuple("P", "scale shift")
def f(scale, shift): return scale * 2 + shift
def kernel(x): return f(**P(x, 1)._asdict())
"""
CASES["split kwargs"] = """
def f(scale, shift): return scale * 2 + shift
def kernel(x): return f(**dict(zip("scale shift".split(), (x, 1))))
"""
CASES["globals string"] = """
def helper(x): return x + 1
def kernel(x): return globals()["helper"](x)
"""
CASES["walrus/compr/nonlocal"] = """
import functools
G = 3
def deco(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        nonlocal count
        count += 1
        return fn(*args, **kwargs) + count
    count = 0
    return inner
@deco
def step(val, *, gain=2): return val * gain
def kernel(x):
    global G
    G += 1
    if (t := x * 2) > 3: t += [y := t + i for i in range(3)][-1] + y
    return step(t, gain=G) + (lambda q, /, r=2: q*r)(t)
"""
CASES["thread daemon"] = """
import threading
class T(threading.Thread):
    def __init__(self):
        super().__init__()
        self.daemon = True
def kernel(x): return T().daemon
"""
CASES["deque maxlen/inherit user getattr"] = """
class Base:
    def __getattr__(self, item): return getattr(self.inner, item)
class W(Base):
    def __init__(self): self.inner = 5
def kernel(x): return W().inner
"""
CASES["dataclass field inherited"] = """
from dataclasses import dataclass, field, asdict
@dataclass
class C:
    alpha: int = 1
    beta: int = field(default=2)
    def __post_init__(self): self.gamma = self.alpha + self.beta
def kernel(x): return asdict(C(alpha=3)), C().gamma
"""
CASES["enum"] = """
import enum
class K(enum.Enum):
    A = 1
    B = 2
def kernel(x): return K.A.name, [k.value for k in K]
"""
CASES["mangled"] = """
class A:
    def __init__(self): self.__v = 3
    def go(self): return self.__v
def kernel(x): return A().go() + A()._A__v
"""
CASES["nested self"] = """
class Outer:
    def __init__(self): self.val = 2
    def go(self, x):
        def inner(self_): return self_.val
        return inner(self) * x
def kernel(x): return Outer().go(x)
"""
CASES["kw via partial obj attr method"] = """
import functools
class A:
    def go(self, amount, rate=1): return amount*rate
def kernel(x): return functools.partial(A().go, rate=3)(x)
"""
CASES["ctypes struct"] = """
import ctypes
class S(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int)]
    def __init__(self, a): self.a = a
def kernel(x): return bytes(S(7))[:1]
"""
CASES["cpp string concat const"] = '''
common = """#include <x.h>
const int TILE = 16;
"""
body = """__global__ void k(float* p) { p[TILE] = 1.f; }
"""
src = common + body
def kernel(x): return src.count("TILE")
'''
CASES["cpp device global by name"] = '''
src = """__constant__ float weights[16];
__global__ void k(float* p) { p[0] = weights[0]; }
"""
def kernel(x): return "weights" in src
'''
CASES["cpp shadow builtin max"] = '''
src = """__global__ void k(float* p) { float max = -1e30f; if (p[0] > max) max = p[0]; p[1] = max; }
__global__ void g(float* p) { p[0] = max(p[0], 0.0f); }
"""
def kernel(x): return "max(p[0]" in src or "max(" in src
'''
CASES["raise message string / logging"] = """
def kernel(x):
    import warnings
    a1 = x
    return a1
"""
CASES["cpp in dict"] = """
d = {"__device__ int n = 1;": 3}
def kernel(x): return d["__device__ int n = 1;"]
"""
