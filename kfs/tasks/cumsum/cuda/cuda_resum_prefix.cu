// inputs: x[R, C]
// outputs: y[R, C] float32
// let: PARTS = cdiv(C, 512)
// launch: resum_scan grid=(R * PARTS,) block=(512,) args=(x, y, C, PARTS)
extern "C" __global__ void resum_scan(const float* x, float* y, int cols, int parts) {
    __shared__ float prefixes[16];
    __shared__ float sums[16];
    const float* in = x + (long long)(blockIdx.x / parts) * cols;
    float* out = y + (long long)(blockIdx.x / parts) * cols;
    int t = threadIdx.x;
    int first = blockIdx.x % parts * 512;
    float prefix = 0.0f;
    for (int c = t; c < first; c += 512) prefix += in[c];
    for (int d = 16; d > 0; d /= 2) prefix += __shfl_xor_sync(0xffffffffu, prefix, d);
    float v = first + t < cols ? in[first + t] : 0.0f;
    for (int d = 1; d < 32; d *= 2) {
        float earlier = __shfl_up_sync(0xffffffffu, v, d);
        if (t % 32 >= d) v += earlier;
    }
    if (t % 32 == 31) {
        prefixes[t / 32] = prefix;
        sums[t / 32] = v;
    }
    __syncthreads();
    float before = 0.0f;
    for (int w = 0; w < 16; w++) before += prefixes[w];
    for (int w = 0; w < t / 32; w++) before += sums[w];
    if (first + t < cols) out[first + t] = before + v;
}
