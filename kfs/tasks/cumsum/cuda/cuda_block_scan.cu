// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: cumsum_block grid=(R,) block=(512,) args=(x, y, C)
extern "C" __global__ void cumsum_block(const float* x, float* y, int cols) {
    __shared__ float sums[2][512];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float carry = 0.0f;
    for (int c = 0; c < cols; c += 512) {
        int side = 0;
        sums[0][t] = c + t < cols ? in[c + t] : 0.0f;
        __syncthreads();
        for (int d = 1; d < 512; d *= 2) {
            sums[1 - side][t] = t >= d ? sums[side][t] + sums[side][t - d] : sums[side][t];
            side = 1 - side;
            __syncthreads();
        }
        if (c + t < cols) out[c + t] = carry + sums[side][t];
        carry += sums[side][511];
        __syncthreads();
    }
}
