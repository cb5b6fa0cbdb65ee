// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: softmax_float4 grid=(R,) block=(256,) args=(x, y, C)
#define QUADS 4  // variants: 1, 8

__device__ float block_reduce(float v, bool maximum, float* slots) {
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, v, d);
        v = maximum ? fmaxf(v, other) : v + other;
    }
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = v;
    __syncthreads();
    v = slots[0];
    for (int w = 1; w < 8; w++) v = maximum ? fmaxf(v, slots[w]) : v + slots[w];
    __syncthreads();
    return v;
}

extern "C" __global__ void __launch_bounds__(256) softmax_float4(const float* x, float* y, int cols) {
    __shared__ float slots[8];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    bool aligned = cols % 4 == 0 && (unsigned long long)x % 16 == 0 && (unsigned long long)y % 16 == 0;
    float peak = -3.0e38f;
    float total = 0.0f;
    if (aligned && cols <= 1024 * QUADS) {
        const float4* in4 = (const float4*)in;
        float4* out4 = (float4*)out;
        int n = cols / 4;
        float4 v[QUADS];
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            int q = t + 256 * k;
            v[k] = q < n ? in4[q] : make_float4(-3.0e38f, -3.0e38f, -3.0e38f, -3.0e38f);
            peak = fmaxf(peak, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
        }
        peak = block_reduce(peak, true, slots);
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            if (t + 256 * k < n) {
                v[k] = make_float4(expf(v[k].x - peak), expf(v[k].y - peak), expf(v[k].z - peak), expf(v[k].w - peak));
                total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
            }
        }
        float scale = 1.0f / block_reduce(total, false, slots);
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            int q = t + 256 * k;
            if (q < n) out4[q] = make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale);
        }
    } else {
        for (int c = t; c < cols; c += 256) peak = fmaxf(peak, in[c]);
        peak = block_reduce(peak, true, slots);
        for (int c = t; c < cols; c += 256) total += expf(in[c] - peak);
        float scale = 1.0f / block_reduce(total, false, slots);
        for (int c = t; c < cols; c += 256) out[c] = expf(in[c] - peak) * scale;
    }
}
