// inputs: x[M, K], w[K, N], bias[N]
// outputs: y[M, N] float32
// let: SPLITS = min(8, cdiv(K, 128)), DEPTH = cdiv(K, SPLITS)
// scratch: parts[SPLITS, M, N] float32
// launch: matmul_slice grid=(cdiv(N, 32), cdiv(M, 32), SPLITS) block=(32, 8) args=(x, w, parts, M, N, K, DEPTH)
// launch: add_slices grid=(cdiv(M * N, 256),) block=(256,) args=(parts, bias, y, M, N, SPLITS)
extern "C" __global__ void matmul_slice(const float* x, const float* w, float* parts, int m, int n, int k, int depth) {
    __shared__ float a[32][33];
    __shared__ float b[32][32];
    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * 32 + tx;
    int top = blockIdx.y * 32;
    int first = blockIdx.z * depth;
    int last = min(first + depth, k);
    float acc[4] = {};
    for (int start = first; start < last; start += 32) {
        for (int r = ty; r < 32; r += 8) {
            a[r][tx] = top + r < m && start + tx < last ? x[(long long)(top + r) * k + start + tx] : 0.0f;
            b[r][tx] = start + r < last && col < n ? w[(long long)(start + r) * n + col] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < 32; i++) {
            for (int r = 0; r < 4; r++) acc[r] = fmaf(a[ty + 8 * r][i], b[i][tx], acc[r]);
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++) {
        int row = top + ty + 8 * r;
        if (row < m && col < n) parts[((long long)blockIdx.z * m + row) * n + col] = acc[r];
    }
}

extern "C" __global__ void add_slices(const float* parts, const float* bias, float* y, int m, int n, int splits) {
    long long size = (long long)m * n;
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= size) return;
    float v = bias[at % n];
    for (int s = 0; s < splits; s++) v += parts[s * size + at];
    y[at] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
}
