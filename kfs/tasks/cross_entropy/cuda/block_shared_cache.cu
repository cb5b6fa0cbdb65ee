// inputs: logits[rows, vocab], targets[rows]
// outputs: loss[rows] float32, grad[rows, vocab] bfloat16
// let: kept = min(vocab, 32768)
// launch: shared_cache grid=(rows,) block=(512,) shared=2*kept args=(logits, targets, loss, grad, vocab, kept)
#include <cuda_bf16.h>

#define THREADS 512

extern "C" __global__ void shared_cache(const __nv_bfloat16* __restrict__ logits, const long long* __restrict__ targets,
                                        float* __restrict__ loss, __nv_bfloat16* __restrict__ grad, int vocab, int kept) {
    extern __shared__ __nv_bfloat16 cache[];
    __shared__ float warps[THREADS / 32];
    const long long row = blockIdx.x;
    const __nv_bfloat16* x = logits + row * vocab;
    __nv_bfloat16* out = grad + row * vocab;
    const int t = threadIdx.x;
    float top = -1e30f;
    for (int c = t; c < vocab; c += THREADS) {
        __nv_bfloat16 v = x[c];
        if (c < kept) cache[c] = v;
        top = fmaxf(top, __bfloat162float(v));
    }
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
    if (t % 32 == 0) warps[t / 32] = top;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++) top = fmaxf(top, warps[w]);
    __syncthreads();
    float total = 0.0f;
    for (int c = t; c < vocab; c += THREADS) total += __expf(__bfloat162float(c < kept ? cache[c] : x[c]) - top);
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
    if (t % 32 == 0) warps[t / 32] = total;
    __syncthreads();
    total = 0.0f;
    for (int w = 0; w < THREADS / 32; w++) total += warps[w];
    const int target = (int)targets[row];
    if (t == 0) loss[row] = logf(total) - (__bfloat162float(x[target]) - top);
    for (int c = t; c < vocab; c += THREADS) {
        float p = __expf(__bfloat162float(c < kept ? cache[c] : x[c]) - top) / total;
        out[c] = __float2bfloat16(c == target ? p - 1.0f : p);
    }
}
