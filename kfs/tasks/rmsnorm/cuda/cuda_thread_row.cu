// inputs: x[R, C], weight[C]
// outputs: y[R, C] float32
// launch: rmsnorm_thread_row grid=(cdiv(R, 128),) block=(128,) args=(x, weight, y, R, C)
extern "C" __global__ void rmsnorm_thread_row(const float* x, const float* weight, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    double squares = 0.0;
    for (int c = 0; c < cols; c++) squares += (double)in[c] * in[c];
    float scale = rsqrtf((float)(squares / cols) + 1e-6f);
    for (int c = 0; c < cols; c++) out[c] = in[c] * scale * weight[c];
}
