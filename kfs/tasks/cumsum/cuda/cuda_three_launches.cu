// inputs: x[R, C]
// outputs: y[R, C] float32
// let: PARTS = cdiv(C, 1024)
// scratch: sums[R, PARTS] float32
// launch: chunk_scan grid=(R * PARTS,) block=(1024,) args=(x, y, sums, C, PARTS)
// launch: scan_sums grid=(cdiv(R, 64),) block=(64,) args=(sums, R, PARTS)
// launch: add_offsets grid=(R * PARTS,) block=(1024,) args=(y, sums, C, PARTS)
__device__ float warp_scan(float v) {
    int lane = threadIdx.x % 32;
    for (int d = 1; d < 32; d *= 2) {
        float earlier = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += earlier;
    }
    return v;
}

extern "C" __global__ void chunk_scan(const float* x, float* y, float* sums, int cols, int parts) {
    __shared__ float warps[32];
    long long start = (long long)(blockIdx.x / parts) * cols;
    int t = threadIdx.x;
    int c = blockIdx.x % parts * 1024 + t;
    float v = warp_scan(c < cols ? x[start + c] : 0.0f);
    if (t % 32 == 31) warps[t / 32] = v;
    __syncthreads();
    if (t < 32) warps[t] = warp_scan(warps[t]);
    __syncthreads();
    if (t >= 32) v += warps[t / 32 - 1];
    if (c < cols) y[start + c] = v;
    if (t == 0) sums[blockIdx.x] = warps[31];
}

extern "C" __global__ void scan_sums(float* sums, int rows, int parts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double before = 0.0;
    for (int p = 0; p < parts; p++) {
        float here = sums[(long long)row * parts + p];
        sums[(long long)row * parts + p] = (float)before;
        before += here;
    }
}

extern "C" __global__ void add_offsets(float* y, const float* sums, int cols, int parts) {
    int c = blockIdx.x % parts * 1024 + threadIdx.x;
    if (c < cols) y[(long long)(blockIdx.x / parts) * cols + c] += sums[blockIdx.x];
}
