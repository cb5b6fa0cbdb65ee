// inputs: x[M, K], w[K, N], bias[N]
// outputs: y[M, N] float32
// launch: matmul_registers grid=(cdiv(N, 64), cdiv(M, 64)) block=(16, 16) args=(x, w, bias, y, M, N, K)
#define STEP 16  // variants: 8, 32

extern "C" __global__ void __launch_bounds__(256)
matmul_registers(const float* x, const float* w, const float* bias, float* y, int m, int n, int k) {
    __shared__ float a[STEP][65];
    __shared__ float b[STEP][64];
    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int t = ty * 16 + tx;
    int top = blockIdx.y * 64;
    int left = blockIdx.x * 64;
    float acc[4][4] = {};
    for (int start = 0; start < k; start += STEP) {
        for (int i = t; i < 64 * STEP; i += 256) {
            int row = top + i / STEP;
            int at = start + i % STEP;
            a[i % STEP][i / STEP] = row < m && at < k ? x[(long long)row * k + at] : 0.0f;
        }
        for (int i = t; i < 64 * STEP; i += 256) {
            int at = start + i / 64;
            int col = left + i % 64;
            b[i / 64][i % 64] = at < k && col < n ? w[(long long)at * n + col] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            float u[4];
            float v[4];
            for (int r = 0; r < 4; r++) u[r] = a[i][ty + 16 * r];
            for (int c = 0; c < 4; c++) v[c] = b[i][tx + 16 * c];
            for (int r = 0; r < 4; r++) {
                for (int c = 0; c < 4; c++) acc[r][c] = fmaf(u[r], v[c], acc[r][c]);
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) {
            int row = top + ty + 16 * r;
            int col = left + tx + 16 * c;
            if (row < m && col < n) {
                float v = acc[r][c] + bias[col];
                y[(long long)row * n + col] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
            }
        }
    }
}
