// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// let: N = T * (H // 128)
// launch: group_scales grid=(cdiv(N, 8),) block=(32, 8) args=(x, scale, N)
// launch: apply_scales grid=(cdiv(T * H, 256),) block=(256,) args=(x, scale, q, T, H)
extern "C" __global__ void group_scales(const float* x, float* scale, int n) {
    int group = blockIdx.x * 8 + threadIdx.y;
    if (group >= n) return;
    const float* in = x + (long long)group * 128;
    float peak = 0.0f;
    for (int c = threadIdx.x; c < 128; c += 32) peak = fmaxf(peak, fabsf(in[c]));
    for (int d = 16; d > 0; d /= 2) peak = fmaxf(peak, __shfl_down_sync(0xffffffffu, peak, d));
    if (threadIdx.x == 0) scale[group] = fmaxf(peak, 1e-10f) / 448.0f;
}

extern "C" __global__ void apply_scales(const float* x, const float* scale, float* q, int tokens, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)tokens * hidden) return;
    q[at] = fminf(fmaxf(x[at] / scale[at / 128], -448.0f), 448.0f);
}
