// inputs: x[R, C], weight[C]
// outputs: y[R, C] float32
// launch: rmsnorm_warp_rows grid=(cdiv(R, 4),) block=(32, 4) args=(x, weight, y, R, C)
extern "C" __global__ void rmsnorm_warp_rows(const float* x, const float* weight, float* y, int rows, int cols) {
    int row = blockIdx.x * 4 + threadIdx.y;
    if (row >= rows) return;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) squares = fmaf(in[c], in[c], squares);
    for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, d);
    float scale = rsqrtf(squares / cols + 1e-6f);
    for (int c = threadIdx.x; c < cols; c += 32) out[c] = in[c] * scale * weight[c];
}
