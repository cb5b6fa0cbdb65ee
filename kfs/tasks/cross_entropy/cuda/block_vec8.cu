// inputs: logits[rows, vocab], targets[rows]
// outputs: loss[rows] float32, grad[rows, vocab] bfloat16
// launch: block_vec8 grid=(rows,) block=(1024,) args=(logits, targets, loss, grad, vocab)
#include <cuda_bf16.h>

#define THREADS 1024

union Pack {
    uint4 raw;
    __nv_bfloat16 v[8];
};

__device__ float reduce(float value, bool is_max, float* warps) {
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffff, value, step);
        value = is_max ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[threadIdx.x % 32];
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffff, value, step);
        value = is_max ? fmaxf(value, other) : value + other;
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) block_vec8(const __nv_bfloat16* __restrict__ logits,
                                                                 const long long* __restrict__ targets, float* __restrict__ loss,
                                                                 __nv_bfloat16* __restrict__ grad, int vocab) {
    __shared__ float warps[32];
    const long long row = blockIdx.x, begin = row * vocab;
    const __nv_bfloat16* x = logits + begin;
    __nv_bfloat16* out = grad + begin;
    const int head = min(vocab, (int)((8 - begin % 8) % 8)), packs = (vocab - head) / 8, tail = head + packs * 8;
    const uint4* wide = reinterpret_cast<const uint4*>(x + head);
    uint4* wide_out = reinterpret_cast<uint4*>(out + head);
    const int t = threadIdx.x;
    float top = -1e30f;
    if (t < head) top = __bfloat162float(x[t]);
    if (tail + t < vocab) top = fmaxf(top, __bfloat162float(x[tail + t]));
    for (int i = t; i < packs; i += THREADS) {
        Pack p;
        p.raw = wide[i];
        for (int j = 0; j < 8; j++) top = fmaxf(top, __bfloat162float(p.v[j]));
    }
    top = reduce(top, true, warps);
    float total = 0.0f;
    if (t < head) total += __expf(__bfloat162float(x[t]) - top);
    if (tail + t < vocab) total += __expf(__bfloat162float(x[tail + t]) - top);
    for (int i = t; i < packs; i += THREADS) {
        Pack p;
        p.raw = wide[i];
        for (int j = 0; j < 8; j++) total += __expf(__bfloat162float(p.v[j]) - top);
    }
    total = reduce(total, false, warps);
    const int target = (int)targets[row];
    const float inv = 1.0f / total;
    if (t == 0) loss[row] = logf(total) - (__bfloat162float(x[target]) - top);
    if (t < head) out[t] = __float2bfloat16(__expf(__bfloat162float(x[t]) - top) * inv - (t == target ? 1.0f : 0.0f));
    if (tail + t < vocab)
        out[tail + t] = __float2bfloat16(__expf(__bfloat162float(x[tail + t]) - top) * inv - (tail + t == target ? 1.0f : 0.0f));
    for (int i = t; i < packs; i += THREADS) {
        Pack p;
        p.raw = wide[i];
        for (int j = 0; j < 8; j++) {
            float g = __expf(__bfloat162float(p.v[j]) - top) * inv;
            p.v[j] = __float2bfloat16(head + 8 * i + j == target ? g - 1.0f : g);
        }
        wide_out[i] = p.raw;
    }
}
