// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: softmax_block_online grid=(R,) block=(256,) args=(x, y, C)
extern "C" __global__ void softmax_block_online(const float* x, float* y, int cols) {
    __shared__ float peaks[256];
    __shared__ float totals[256];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float peak = -3.0e38f;
    float total = 0.0f;
    for (int c = t; c < cols; c += 256) {
        float v = in[c];
        if (v > peak) {
            total *= expf(peak - v);
            peak = v;
        }
        total += expf(v - peak);
    }
    peaks[t] = peak;
    totals[t] = total;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) {
            float top = fmaxf(peaks[t], peaks[t + half]);
            totals[t] = totals[t] * expf(peaks[t] - top) + totals[t + half] * expf(peaks[t + half] - top);
            peaks[t] = top;
        }
        __syncthreads();
    }
    peak = peaks[0];
    total = totals[0];
    for (int c = t; c < cols; c += 256) out[c] = expf(in[c] - peak) / total;
}
