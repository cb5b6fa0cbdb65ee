// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: softmax_warp_rows grid=(cdiv(R, 8),) block=(32, 8) args=(x, y, R, C)
extern "C" __global__ void softmax_warp_rows(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    float peak = -3.0e38f;
    for (int c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, in[c]);
    for (int d = 16; d > 0; d /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, d));
    float total = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) total += expf(in[c] - peak);
    for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
    float scale = 1.0f / total;
    for (int c = threadIdx.x; c < cols; c += 32) out[c] = expf(in[c] - peak) * scale;
}
