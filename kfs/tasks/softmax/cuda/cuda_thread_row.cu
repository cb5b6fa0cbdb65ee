// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: softmax_thread_row grid=(cdiv(R, 64),) block=(64,) args=(x, y, R, C)
extern "C" __global__ void softmax_thread_row(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    float peak = in[0];
    for (int c = 1; c < cols; c++) peak = fmaxf(peak, in[c]);
    double total = 0.0;
    for (int c = 0; c < cols; c++) {
        float e = expf(in[c] - peak);
        out[c] = e;
        total += e;
    }
    float scale = (float)(1.0 / total);
    for (int c = 0; c < cols; c++) out[c] *= scale;
}
