// inputs: x[R, C], weight[C]
// outputs: y[R, C] float32
// launch: rmsnorm_block grid=(R,) block=(256,) args=(x, weight, y, C)
extern "C" __global__ void rmsnorm_block(const float* x, const float* weight, float* y, int cols) {
    __shared__ float partial[256];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float squares = 0.0f;
    for (int c = t; c < cols; c += 256) squares += in[c] * in[c];
    partial[t] = squares;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    float scale = 1.0f / sqrtf(partial[0] / cols + 1e-6f);
    for (int c = t; c < cols; c += 256) out[c] = in[c] * scale * weight[c];
}
