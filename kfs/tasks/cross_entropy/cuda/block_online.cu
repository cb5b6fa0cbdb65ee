// inputs: logits[rows, vocab], targets[rows]
// outputs: loss[rows] float32, grad[rows, vocab] bfloat16
// launch: block_online grid=(rows,) block=(512,) args=(logits, targets, loss, grad, vocab)
#include <cuda_bf16.h>

#define THREADS 512

__device__ void merge(float& top, float& total, float other_top, float other_total) {
    float high = fmaxf(top, other_top);
    total = total * __expf(top - high) + other_total * __expf(other_top - high);
    top = high;
}

extern "C" __global__ void block_online(const __nv_bfloat16* __restrict__ logits, const long long* __restrict__ targets,
                                        float* __restrict__ loss, __nv_bfloat16* __restrict__ grad, int vocab) {
    __shared__ float tops[THREADS / 32], totals[THREADS / 32];
    const long long row = blockIdx.x;
    const __nv_bfloat16* x = logits + row * vocab;
    __nv_bfloat16* out = grad + row * vocab;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float top = -1e30f, total = 0.0f;
    for (int c = threadIdx.x; c < vocab; c += THREADS) {
        float v = __bfloat162float(x[c]);
        if (v > top) {
            total *= __expf(top - v);
            top = v;
        }
        total += __expf(v - top);
    }
    for (int step = 16; step > 0; step /= 2) {
        float other_top = __shfl_xor_sync(0xffffffff, top, step);
        float other_total = __shfl_xor_sync(0xffffffff, total, step);
        merge(top, total, other_top, other_total);
    }
    if (lane == 0) {
        tops[warp] = top;
        totals[warp] = total;
    }
    __syncthreads();
    top = tops[0];
    total = totals[0];
    for (int w = 1; w < THREADS / 32; w++) merge(top, total, tops[w], totals[w]);
    const int target = (int)targets[row];
    if (threadIdx.x == 0) loss[row] = logf(total) - (__bfloat162float(x[target]) - top);
    const float inv = 1.0f / total;
    for (int c = threadIdx.x; c < vocab; c += THREADS) {
        float p = __expf(__bfloat162float(x[c]) - top) * inv;
        out[c] = __float2bfloat16(c == target ? p - 1.0f : p);
    }
}
