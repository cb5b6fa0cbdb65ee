import torch
import triton
import triton.language as tl


@triton.jit
def pack(k_ptr, w_ptr, g_ptr, kt_ptr, wc_ptr, keep_ptr, H, K, KP: tl.constexpr):
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t = tl.arange(0, 64)
    i = tl.arange(0, KP)
    token = (chunk * 64 + t) * H + head
    mask = i[None, :] < K
    last = tl.load(g_ptr + (chunk * 64 + 63) * H + head)
    fall = tl.exp(last - tl.load(g_ptr + token))
    at = (chunk * H + head) * K * 64
    k = tl.load(k_ptr + token[:, None] * K + i, mask, other=0.0) * fall[:, None]
    tl.store(kt_ptr + at + i * 64 + t[:, None], k, mask)
    w = tl.load(w_ptr + token[:, None] * K + i, mask, other=0.0)
    tl.store(wc_ptr + at + t[:, None] * K + i, w, mask)
    tl.store(keep_ptr + chunk * H + head, tl.exp(last))


def kernel(k, w, u, g):
    B, T, H, K = k.shape
    V, n = u.shape[-1], T // 64
    keys = torch.empty(B, n, H, K, 64, device=k.device)
    reads = torch.empty(B, n, H, 64, K, device=k.device)
    keep = torch.empty(B, n, H, 1, 1, device=k.device)
    pack[(B * n, H)](k, w, g, keys, reads, keep, H, K, KP=triton.next_power_of_2(K), num_warps=4)
    values = u.view(B, n, 64, H, V).transpose(2, 3).clone(memory_format=torch.contiguous_format)
    h = torch.zeros(B, n, H, K, V, device=k.device)
    for c in range(n):
        values[:, c] -= reads[:, c] @ h[:, c]
        if c + 1 < n:
            h[:, c + 1] = keep[:, c] * h[:, c] + keys[:, c] @ values[:, c]
    return h, values.transpose(2, 3).reshape(u.shape).contiguous()
