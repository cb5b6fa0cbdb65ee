// inputs: x[R, C]
// outputs: y[R, C] float32
// let: KEPT = min(C, 12000)
// launch: softmax_shared_row grid=(R,) block=(512,) shared=4*KEPT args=(x, y, C, KEPT)
__device__ float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

extern "C" __global__ void softmax_shared_row(const float* x, float* y, int cols, int kept) {
    extern __shared__ float cache[];
    __shared__ float maxima[16];
    __shared__ float sums[16];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float peak = -3.0e38f;
    for (int c = t; c < cols; c += 512) {
        float v = in[c];
        if (c < kept) cache[c] = v;
        peak = fmaxf(peak, v);
    }
    peak = warp_max(peak);
    if (t % 32 == 0) maxima[t / 32] = peak;
    __syncthreads();
    peak = warp_max(maxima[t % 16]);
    float total = 0.0f;
    for (int c = t; c < cols; c += 512) {
        float e = expf((c < kept ? cache[c] : in[c]) - peak);
        if (c < kept) cache[c] = e;
        total += e;
    }
    total = warp_sum(total);
    if (t % 32 == 0) sums[t / 32] = total;
    __syncthreads();
    float scale = 2.0f / warp_sum(sums[t % 16]);
    for (int c = t; c < cols; c += 512) out[c] = (c < kept ? cache[c] : expf(in[c] - peak)) * scale;
}
