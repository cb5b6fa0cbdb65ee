// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: cumsum_warp_rows grid=(cdiv(R, 8),) block=(32, 8) args=(x, y, R, C)
extern "C" __global__ void cumsum_warp_rows(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * 8 + threadIdx.y;
    if (row >= rows) return;
    const float* in = x + (long long)row * cols;
    float* out = y + (long long)row * cols;
    int lane = threadIdx.x;
    double carry = 0.0;
    for (int c = 0; c < cols; c += 32) {
        float v = c + lane < cols ? in[c + lane] : 0.0f;
        for (int d = 1; d < 32; d *= 2) {
            float earlier = __shfl_up_sync(0xffffffffu, v, d);
            if (lane >= d) v += earlier;
        }
        if (c + lane < cols) out[c + lane] = (float)(carry + v);
        carry += __shfl_sync(0xffffffffu, v, 31);
    }
}
