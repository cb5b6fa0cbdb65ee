// inputs: x[R, C], weight[C]
// outputs: y[R, C] float32
// let: KEPT = min(C, 12000)
// launch: rmsnorm_shared_row grid=(R,) block=(256,) shared=4*KEPT args=(x, weight, y, C, KEPT)
extern "C" __global__ void rmsnorm_shared_row(const float* x, const float* weight, float* y, int cols, int kept) {
    extern __shared__ float cache[];
    __shared__ float sums[8];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float squares = 0.0f;
    for (int c = t; c < kept; c += 256) {
        float v = in[c];
        cache[c] = v;
        squares += v * v;
    }
    for (int c = kept + t; c < cols; c += 256) squares += in[c] * in[c];
    for (int d = 16; d > 0; d /= 2) squares += __shfl_down_sync(0xffffffffu, squares, d);
    if (t % 32 == 0) sums[t / 32] = squares;
    __syncthreads();
    float total = 0.0f;
    for (int w = 0; w < 8; w++) total += sums[w];
    float scale = rsqrtf(total / cols + 1e-6f);
    for (int c = t; c < kept; c += 256) out[c] = cache[c] * scale * weight[c];
    for (int c = kept + t; c < cols; c += 256) out[c] = in[c] * scale * weight[c];
}
