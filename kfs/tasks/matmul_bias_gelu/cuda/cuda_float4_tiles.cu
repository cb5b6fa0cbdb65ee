// inputs: x[M, K], w[K, N], bias[N]
// outputs: y[M, N] float32
// launch: matmul_float4 grid=(cdiv(N, 128), cdiv(M, 128)) block=(256,) args=(x, w, bias, y, M, N, K)
__device__ float4 load4(const float* p, int left, bool aligned) {
    if (aligned && left >= 4) return *(const float4*)p;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (left > 0) v.x = p[0];
    if (left > 1) v.y = p[1];
    if (left > 2) v.z = p[2];
    if (left > 3) v.w = p[3];
    return v;
}

extern "C" __global__ void __launch_bounds__(256)
matmul_float4(const float* x, const float* w, const float* bias, float* y, int m, int n, int k) {
    __shared__ float a[8][132];
    __shared__ __align__(16) float b[8][128];
    int t = threadIdx.x;
    int top = blockIdx.y * 128;
    int left = blockIdx.x * 128;
    bool wide_x = k % 4 == 0 && (unsigned long long)x % 16 == 0;
    bool wide_w = n % 4 == 0 && (unsigned long long)w % 16 == 0;
    int a_row = t / 2;
    int a_at = t % 2 * 4;
    int b_at = t / 32;
    int b_col = t % 32 * 4;
    int ty = t / 16;
    int tx = t % 16;
    float acc[8][8] = {};
    for (int start = 0; start < k; start += 8) {
        bool a_live = top + a_row < m;
        bool b_live = start + b_at < k;
        float4 u = load4(x + (long long)(top + a_row) * k + start + a_at, a_live ? k - start - a_at : 0, wide_x);
        float4 v = load4(w + (long long)(start + b_at) * n + left + b_col, b_live ? n - left - b_col : 0, wide_w);
        a[a_at][a_row] = u.x;
        a[a_at + 1][a_row] = u.y;
        a[a_at + 2][a_row] = u.z;
        a[a_at + 3][a_row] = u.w;
        *(float4*)&b[b_at][b_col] = v;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float p[8];
            float q[8];
#pragma unroll
            for (int r = 0; r < 8; r++) p[r] = a[i][ty * 8 + r];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                q[c] = b[i][tx * 4 + c];
                q[c + 4] = b[i][64 + tx * 4 + c];
            }
#pragma unroll
            for (int r = 0; r < 8; r++) {
#pragma unroll
                for (int c = 0; c < 8; c++) acc[r][c] = fmaf(p[r], q[c], acc[r][c]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 8; r++) {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            int row = top + ty * 8 + r;
            int col = left + c / 4 * 64 + tx * 4 + c % 4;
            if (row < m && col < n) {
                float v = acc[r][c] + bias[col];
                y[(long long)row * n + col] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
            }
        }
    }
}
