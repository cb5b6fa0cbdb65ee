// inputs: x[M, K], w[K, N], bias[N]
// outputs: y[M, N] float32
// launch: matmul_rows grid=(cdiv(N, 128), cdiv(M, HEIGHT)) block=(128,) args=(x, w, bias, y, M, N, K)
#define HEIGHT 8  // variants: 4, 16

extern "C" __global__ void __launch_bounds__(128)
matmul_rows(const float* x, const float* w, const float* bias, float* y, int m, int n, int k) {
    __shared__ float rows[128][HEIGHT];
    int t = threadIdx.x;
    int col = blockIdx.x * 128 + t;
    int top = blockIdx.y * HEIGHT;
    float acc[HEIGHT] = {};
    for (int start = 0; start < k; start += 128) {
        for (int r = 0; r < HEIGHT; r++) {
            rows[t][r] = top + r < m && start + t < k ? x[(long long)(top + r) * k + start + t] : 0.0f;
        }
        __syncthreads();
        int depth = min(128, k - start);
        if (col < n) {
            for (int i = 0; i < depth; i++) {
                float v = w[(long long)(start + i) * n + col];
#pragma unroll
                for (int r = 0; r < HEIGHT; r++) acc[r] = fmaf(rows[i][r], v, acc[r]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < HEIGHT; r++) {
        if (col < n && top + r < m) {
            float v = acc[r] + bias[col];
            y[(long long)(top + r) * n + col] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
        }
    }
}
