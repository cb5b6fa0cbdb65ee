// inputs: x[R, C]
// outputs: y[R, C] float32
// let: PARTS = cdiv(C, 2048)
// scratch: peaks[R, PARTS] float32, totals[R, PARTS] float32
// launch: chunk_stats grid=(PARTS * R,) block=(256,) args=(x, peaks, totals, C, PARTS)
// launch: row_stats grid=(cdiv(R, 128),) block=(128,) args=(peaks, totals, R, PARTS)
// launch: chunk_apply grid=(PARTS * R,) block=(256,) args=(x, y, peaks, totals, C, PARTS)
extern "C" __global__ void chunk_stats(const float* x, float* peaks, float* totals, int cols, int parts) {
    __shared__ float slots[256];
    int row = blockIdx.x / parts;
    int part = blockIdx.x % parts;
    const float* in = x + (long long)row * cols;
    int t = threadIdx.x;
    int end = min(cols, (part + 1) * 2048);
    float peak = -3.0e38f;
    for (int c = part * 2048 + t; c < end; c += 256) peak = fmaxf(peak, in[c]);
    slots[t] = peak;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) slots[t] = fmaxf(slots[t], slots[t + half]);
        __syncthreads();
    }
    peak = slots[0];
    __syncthreads();
    float total = 0.0f;
    for (int c = part * 2048 + t; c < end; c += 256) total += expf(in[c] - peak);
    slots[t] = total;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) slots[t] += slots[t + half];
        __syncthreads();
    }
    if (t == 0) {
        peaks[blockIdx.x] = peak;
        totals[blockIdx.x] = slots[0];
    }
}

extern "C" __global__ void row_stats(float* peaks, float* totals, int rows, int parts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float* m = peaks + (long long)row * parts;
    float* s = totals + (long long)row * parts;
    float peak = m[0];
    for (int p = 1; p < parts; p++) peak = fmaxf(peak, m[p]);
    float total = 0.0f;
    for (int p = 0; p < parts; p++) total += s[p] * expf(m[p] - peak);
    m[0] = peak;
    s[0] = 1.0f / total;
}

extern "C" __global__ void chunk_apply(const float* x, float* y, const float* peaks, const float* totals, int cols, int parts) {
    int row = blockIdx.x / parts;
    int part = blockIdx.x % parts;
    long long start = (long long)row * cols;
    float peak = peaks[(long long)row * parts];
    float scale = totals[(long long)row * parts];
    int end = min(cols, (part + 1) * 2048);
    for (int c = part * 2048 + threadIdx.x; c < end; c += 256) y[start + c] = expf(x[start + c] - peak) * scale;
}
