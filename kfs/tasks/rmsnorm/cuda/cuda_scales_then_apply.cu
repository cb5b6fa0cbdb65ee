// inputs: x[R, C], weight[C]
// outputs: y[R, C] float32
// scratch: scales[R] float32
// launch: row_scales grid=(R,) block=(128,) args=(x, scales, C)
// launch: apply_scales grid=(cdiv(R*C, 256),) block=(256,) args=(x, weight, scales, y, R, C)
extern "C" __global__ void row_scales(const float* x, float* scales, int cols) {
    __shared__ float sums[4];
    const float* in = x + (long long)blockIdx.x * cols;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 128) squares += in[c] * in[c];
    for (int d = 16; d > 0; d /= 2) squares += __shfl_down_sync(0xffffffffu, squares, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    if (threadIdx.x == 0) {
        float mean = (sums[0] + sums[1] + sums[2] + sums[3]) / cols;
        scales[blockIdx.x] = rsqrtf(mean + 1e-6f);
    }
}

extern "C" __global__ void apply_scales(const float* x, const float* weight, const float* scales, float* y, int rows, int cols) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)rows * cols) return;
    y[at] = x[at] * scales[at / cols] * weight[at % cols];
}
