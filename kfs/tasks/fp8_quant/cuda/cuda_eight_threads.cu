// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// let: N = T * (H // 128)
// launch: quantise_eighth grid=(cdiv(N, 32),) block=(256,) args=(x, q, scale, N)
extern "C" __global__ void __launch_bounds__(256) quantise_eighth(const float4* x, float4* q, float* scale, int n) {
    int group = blockIdx.x * 32 + threadIdx.x / 8;
    int lane = threadIdx.x % 8;
    bool live = group < n;
    const float4* in = x + (long long)group * 32;
    float4* out = q + (long long)group * 32;
    float4 v[4];
    float peak = 1e-10f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k] = live ? in[lane + 8 * k] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        peak = fmaxf(peak, fmaxf(fmaxf(fabsf(v[k].x), fabsf(v[k].y)), fmaxf(fabsf(v[k].z), fabsf(v[k].w))));
    }
    for (int d = 4; d > 0; d /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, d));
    if (!live) return;
    float inverse = 448.0f / peak;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k].x = fminf(fmaxf(v[k].x * inverse, -448.0f), 448.0f);
        v[k].y = fminf(fmaxf(v[k].y * inverse, -448.0f), 448.0f);
        v[k].z = fminf(fmaxf(v[k].z * inverse, -448.0f), 448.0f);
        v[k].w = fminf(fmaxf(v[k].w * inverse, -448.0f), 448.0f);
        out[lane + 8 * k] = v[k];
    }
    if (lane == 0) scale[group] = peak / 448.0f;
}
