// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// let: N = T * (H // 128)
// launch: quantise_stride grid=(min(264, cdiv(N, 8)),) block=(32, 8) args=(x, q, scale, N)
extern "C" __global__ void quantise_stride(const float4* x, float4* q, float* scale, int n) {
    int lane = threadIdx.x;
    int step = gridDim.x * 8;
    int group = blockIdx.x * 8 + threadIdx.y;
    float4 next = group < n ? x[(long long)group * 32 + lane] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (; group < n; group += step) {
        float4 v = next;
        if (group + step < n) next = x[(long long)(group + step) * 32 + lane];
        float peak = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
        for (int d = 16; d > 0; d /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, d));
        peak = fmaxf(peak, 1e-10f);
        float inverse = 448.0f / peak;
        v.x = fminf(fmaxf(v.x * inverse, -448.0f), 448.0f);
        v.y = fminf(fmaxf(v.y * inverse, -448.0f), 448.0f);
        v.z = fminf(fmaxf(v.z * inverse, -448.0f), 448.0f);
        v.w = fminf(fmaxf(v.w * inverse, -448.0f), 448.0f);
        q[(long long)group * 32 + lane] = v;
        if (lane == 0) scale[group] = peak / 448.0f;
    }
}
