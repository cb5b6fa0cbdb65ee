// inputs: logits[rows, vocab], targets[rows]
// outputs: loss[rows] float32, grad[rows, vocab] bfloat16
// launch: warp_row grid=(cdiv(rows, 4),) block=(32, 4) args=(logits, targets, loss, grad, rows, vocab)
#include <cuda_bf16.h>

#define UNROLL 4  // variants: 1, 8

extern "C" __global__ void warp_row(const __nv_bfloat16* __restrict__ logits, const long long* __restrict__ targets,
                                    float* __restrict__ loss, __nv_bfloat16* __restrict__ grad, int rows, int vocab) {
    const long long row = (long long)blockIdx.x * 4 + threadIdx.y;
    if (row >= rows) return;
    const __nv_bfloat16* x = logits + row * vocab;
    __nv_bfloat16* out = grad + row * vocab;
    float tops[UNROLL], totals[UNROLL];
    for (int u = 0; u < UNROLL; u++) {
        tops[u] = -1e30f;
        totals[u] = 0.0f;
    }
    for (int start = threadIdx.x; start < vocab; start += 32 * UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int c = start + 32 * u;
            if (c < vocab) {
                float v = __bfloat162float(x[c]), high = fmaxf(tops[u], v);
                totals[u] = totals[u] * __expf(tops[u] - high) + __expf(v - high);
                tops[u] = high;
            }
        }
    }
    float top = tops[0];
    for (int u = 1; u < UNROLL; u++) top = fmaxf(top, tops[u]);
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
    float total = 0.0f;
    for (int u = 0; u < UNROLL; u++) total += totals[u] * __expf(tops[u] - top);
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
    const int target = (int)targets[row];
    if (threadIdx.x == 0) loss[row] = logf(total) - (__bfloat162float(x[target]) - top);
    for (int c = threadIdx.x; c < vocab; c += 32) {
        float p = __expf(__bfloat162float(x[c]) - top) / total;
        out[c] = __float2bfloat16(c == target ? p - 1.0f : p);
    }
}
