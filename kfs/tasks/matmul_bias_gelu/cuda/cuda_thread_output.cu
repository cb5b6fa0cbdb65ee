// inputs: x[M, K], w[K, N], bias[N]
// outputs: y[M, N] float32
// launch: matmul_thread grid=(cdiv(N, 32), cdiv(M, 8)) block=(32, 8) args=(x, w, bias, y, M, N, K)
extern "C" __global__ void matmul_thread(const float* x, const float* w, const float* bias, float* y, int m, int n, int k) {
    int col = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 8 + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum = fmaf(x[(long long)row * k + i], w[(long long)i * n + col], sum);
    float v = sum + bias[col];
    y[(long long)row * n + col] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
}
