// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// let: N = T * (H // 128)
// launch: quantise_thread grid=(cdiv(N, 64),) block=(64,) args=(x, q, scale, N)
extern "C" __global__ void quantise_thread(const float* x, float* q, float* scale, int n) {
    int group = blockIdx.x * blockDim.x + threadIdx.x;
    if (group >= n) return;
    const float* in = x + (long long)group * 128;
    float* out = q + (long long)group * 128;
    float peak = 1e-10f;
    for (int c = 0; c < 128; c++) peak = fmaxf(peak, fabsf(in[c]));
    float s = peak / 448.0f;
    scale[group] = s;
    for (int c = 0; c < 128; c++) out[c] = fminf(fmaxf(in[c] / s, -448.0f), 448.0f);
}
