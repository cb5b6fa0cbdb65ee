// inputs: x[M, K], w[K, N], bias[N]
// outputs: y[M, N] float32
// launch: matmul_shared grid=(cdiv(N, TILE), cdiv(M, TILE)) block=(TILE, TILE) args=(x, w, bias, y, M, N, K)
#define TILE 16  // variants: 32, 8

extern "C" __global__ void matmul_shared(const float* x, const float* w, const float* bias, float* y, int m, int n, int k) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        a[ty][tx] = row < m && start + tx < k ? x[(long long)row * k + start + tx] : 0.0f;
        b[ty][tx] = col < n && start + ty < k ? w[(long long)(start + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += a[ty][i] * b[i][tx];
        __syncthreads();
    }
    if (row < m && col < n) {
        float v = sum + bias[col];
        y[(long long)row * n + col] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}
