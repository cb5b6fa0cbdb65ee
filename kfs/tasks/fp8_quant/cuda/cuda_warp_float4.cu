// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// let: N = T * (H // 128)
// launch: quantise_warp grid=(cdiv(N, WARPS),) block=(32, WARPS) args=(x, q, scale, N)
#define WARPS 4  // variants: 1, 8

__device__ float quantised(float v, float s) {
    return fminf(fmaxf(v / s, -448.0f), 448.0f);
}

extern "C" __global__ void quantise_warp(const float4* x, float4* q, float* scale, int n) {
    int group = blockIdx.x * WARPS + threadIdx.y;
    if (group >= n) return;
    long long at = (long long)group * 32 + threadIdx.x;
    float4 v = x[at];
    float peak = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    for (int d = 16; d > 0; d /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, d));
    float s = fmaxf(peak, 1e-10f) / 448.0f;
    q[at] = make_float4(quantised(v.x, s), quantised(v.y, s), quantised(v.z, s), quantised(v.w, s));
    if (threadIdx.x == 0) scale[group] = s;
}
