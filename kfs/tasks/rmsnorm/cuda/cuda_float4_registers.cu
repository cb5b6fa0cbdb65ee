// inputs: x[R, C], weight[C]
// outputs: y[R, C] float32
// launch: rmsnorm_float4 grid=(R,) block=(256,) args=(x, weight, y, C)
#define QUADS 4  // variants: 2, 8

__device__ float block_sum(float v) {
    __shared__ float sums[8];
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
    for (int w = 0; w < 8; w++) v += sums[w];
    return v;
}

__device__ bool quad_aligned(const void* p) {
    return (unsigned long long)p % 16 == 0;
}

extern "C" __global__ void __launch_bounds__(256) rmsnorm_float4(const float* x, const float* weight, float* y, int cols) {
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float squares = 0.0f;
    if (cols % 4 == 0 && cols <= 1024 * QUADS && quad_aligned(x) && quad_aligned(weight) && quad_aligned(y)) {
        int n = cols / 4;
        float4 v[QUADS];
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            int q = t + 256 * k;
            v[k] = q < n ? ((const float4*)in)[q] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            squares += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
        }
        float scale = rsqrtf(block_sum(squares) / cols + 1e-6f);
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            int q = t + 256 * k;
            if (q < n) {
                float4 w = ((const float4*)weight)[q];
                ((float4*)out)[q] =
                    make_float4(v[k].x * scale * w.x, v[k].y * scale * w.y, v[k].z * scale * w.z, v[k].w * scale * w.w);
            }
        }
    } else {
        for (int c = t; c < cols; c += 256) squares += in[c] * in[c];
        float scale = rsqrtf(block_sum(squares) / cols + 1e-6f);
        for (int c = t; c < cols; c += 256) out[c] = in[c] * scale * weight[c];
    }
}
