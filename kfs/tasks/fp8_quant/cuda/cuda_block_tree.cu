// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// launch: quantise_block grid=(T * (H // 128),) block=(128,) args=(x, q, scale)
extern "C" __global__ void quantise_block(const float* x, float* q, float* scale) {
    __shared__ float peaks[128];
    int t = threadIdx.x;
    long long at = (long long)blockIdx.x * 128 + t;
    float v = x[at];
    peaks[t] = fabsf(v);
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) peaks[t] = fmaxf(peaks[t], peaks[t + half]);
        __syncthreads();
    }
    float s = fmaxf(peaks[0], 1e-10f) / 448.0f;
    q[at] = fminf(fmaxf(v / s, -448.0f), 448.0f);
    if (t == 0) scale[blockIdx.x] = s;
}
