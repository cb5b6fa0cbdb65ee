// inputs: logits[rows, vocab], targets[rows]
// outputs: loss[rows] float32, grad[rows, vocab] bfloat16
// let: parts = cdiv(vocab, 8192)
// scratch: tops[rows, parts] float32, totals[rows, parts] float32, shift[rows] float32
// launch: split_sums grid=(parts, rows) block=(256,) args=(logits, tops, totals, vocab)
// launch: combine grid=(cdiv(rows, 128),) block=(128,) args=(logits, targets, tops, totals, shift, loss, rows, vocab, parts)
// launch: gradient grid=(parts, rows) block=(256,) args=(logits, targets, shift, grad, vocab)
#include <cuda_bf16.h>

#define SPAN 8192
#define THREADS 256

extern "C" __global__ void split_sums(const __nv_bfloat16* __restrict__ logits, float* __restrict__ tops,
                                      float* __restrict__ totals, int vocab) {
    __shared__ float buffer[THREADS];
    const long long row = blockIdx.y;
    const int t = threadIdx.x, begin = blockIdx.x * SPAN, end = min(vocab, begin + SPAN);
    const __nv_bfloat16* x = logits + row * vocab;
    float top = -1e30f;
    for (int c = begin + t; c < end; c += THREADS) top = fmaxf(top, __bfloat162float(x[c]));
    buffer[t] = top;
    for (int step = THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (t < step) buffer[t] = fmaxf(buffer[t], buffer[t + step]);
    }
    __syncthreads();
    top = buffer[0];
    __syncthreads();
    float total = 0.0f;
    for (int c = begin + t; c < end; c += THREADS) total += __expf(__bfloat162float(x[c]) - top);
    buffer[t] = total;
    for (int step = THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (t < step) buffer[t] += buffer[t + step];
    }
    if (t == 0) {
        tops[row * gridDim.x + blockIdx.x] = top;
        totals[row * gridDim.x + blockIdx.x] = buffer[0];
    }
}

extern "C" __global__ void combine(const __nv_bfloat16* __restrict__ logits, const long long* __restrict__ targets,
                                   const float* __restrict__ tops, const float* __restrict__ totals, float* __restrict__ shift,
                                   float* __restrict__ loss, int rows, int vocab, int parts) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float top = -1e30f, total = 0.0f;
    for (int p = 0; p < parts; p++) top = fmaxf(top, tops[row * parts + p]);
    for (int p = 0; p < parts; p++) total += totals[row * parts + p] * __expf(tops[row * parts + p] - top);
    shift[row] = top + logf(total);
    loss[row] = logf(total) - (__bfloat162float(logits[row * vocab + targets[row]]) - top);
}

extern "C" __global__ void gradient(const __nv_bfloat16* __restrict__ logits, const long long* __restrict__ targets,
                                    const float* __restrict__ shift, __nv_bfloat16* __restrict__ grad, int vocab) {
    const long long row = blockIdx.y, base = row * vocab;
    const int begin = blockIdx.x * SPAN, end = min(vocab, begin + SPAN), target = (int)targets[row];
    const float lse = shift[row];
    for (int c = begin + threadIdx.x; c < end; c += THREADS) {
        float p = __expf(__bfloat162float(logits[base + c]) - lse);
        grad[base + c] = __float2bfloat16(c == target ? p - 1.0f : p);
    }
}
