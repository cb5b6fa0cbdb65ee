import torch
import triton
import triton.language as tl


@triton.jit
def transitions(k_ptr, w_ptr, u_ptr, g_ptr, step_ptr, gain_ptr, H, K, V, KP: tl.constexpr, VP: tl.constexpr):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = (chunk * 64 + tl.arange(0, 64)) * H + head
    i = tl.arange(0, KP)
    j = tl.arange(0, VP)
    has_k, has_v = i < K, j < V
    last = tl.load(g_ptr + (chunk * 64 + 63) * H + head)
    fall = tl.exp(last - tl.load(g_ptr + token))
    k = tl.load(k_ptr + token * K + i[:, None], has_k[:, None], other=0.0) * fall
    w = tl.load(w_ptr + token[:, None] * K + i, has_k, other=0.0)
    u = tl.load(u_ptr + token[:, None] * V + j, has_v, other=0.0)
    step = tl.where(i[:, None] == i, tl.exp(last), 0.0) - tl.dot(k, w, input_precision="ieee")
    gain = tl.dot(k, u, input_precision="ieee")
    at = chunk * H + head
    tl.store(step_ptr + at * K * K + i[:, None] * K + i, step, has_k[:, None] & has_k)
    tl.store(gain_ptr + at * K * V + i[:, None] * V + j, gain, has_k[:, None] & has_v)


@triton.jit
def scan(step_ptr, gain_ptr, h_ptr, H, K, V, n, KP: tl.constexpr, BV: tl.constexpr):
    b, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    i = tl.arange(0, KP)
    j = tl.program_id(1) * BV + tl.arange(0, BV)
    square = (i[:, None] < K) & (i < K)
    wide = (i[:, None] < K) & (j < V)
    state = tl.zeros((KP, BV), tl.float32)
    for c in range(n):
        at = (b * n + c) * H + head
        tl.store(h_ptr + at * K * V + i[:, None] * V + j, state, wide)
        step = tl.load(step_ptr + at * K * K + i[:, None] * K + i, square, other=0.0)
        gain = tl.load(gain_ptr + at * K * V + i[:, None] * V + j, wide, other=0.0)
        state = tl.dot(step, state, gain, input_precision="ieee")


@triton.jit
def corrected(w_ptr, u_ptr, h_ptr, v_ptr, H, K, V, KP: tl.constexpr, BV: tl.constexpr):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = (chunk * 64 + tl.arange(0, 64)) * H + head
    i = tl.arange(0, KP)
    j = tl.program_id(2) * BV + tl.arange(0, BV)
    has_k, has_v = i < K, j < V
    state = tl.load(h_ptr + (chunk * H + head) * K * V + i[:, None] * V + j, has_k[:, None] & has_v, other=0.0)
    w = tl.load(w_ptr + token[:, None] * K + i, has_k, other=0.0)
    u = tl.load(u_ptr + token[:, None] * V + j, has_v, other=0.0)
    tl.store(v_ptr + token[:, None] * V + j, u - tl.dot(w, state, input_precision="ieee"), has_v)


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    step = torch.empty(B, n, H, K, K, device=k.device)
    gain = torch.empty(B, n, H, K, V, device=k.device)
    h = torch.empty_like(gain)
    v_new = torch.empty_like(u)
    KP, VP = (max(16, triton.next_power_of_2(x)) for x in (K, V))
    parts = triton.cdiv(V, 16)
    transitions[(B * n, H)](k, w, u, g, step, gain, H, K, V, KP=KP, VP=VP, num_warps=8)
    scan[(B * H, parts)](step, gain, h, H, K, V, n, KP=KP, BV=16, num_warps=4)
    corrected[(B * n, H, parts)](w, u, h, v_new, H, K, V, KP=KP, BV=16, num_warps=8)
    return h, v_new
