// inputs: k[B, T, H, K], v[B, T, H, V], beta[B, T, H], A[B, T, H, C], g[B, T, H]
// outputs: w[B, T, H, K] float32, u[B, T, H, V] float32
// let: tokens = B * T * H
// launch: warp_token grid=(cdiv(tokens, 8),) block=(32, 8) args=(k, v, beta, A, g, w, u, tokens, H, K, V, C)
extern "C" __global__ void warp_token(const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ beta,
                                      const float* __restrict__ A, const float* __restrict__ g, float* __restrict__ w,
                                      float* __restrict__ u, int tokens, int H, int K, int V, int C) {
    const long long token = (long long)blockIdx.x * 8 + threadIdx.y;
    if (token >= tokens) return;
    const int lane = threadIdx.x, t = token / H % C;
    const long long first = token - (long long)t * H;
    for (int j = lane; j < K + V; j += 32) {
        float sum = 0.0f;
        for (int s = 0; s <= t; s++) {
            const long long other = first + s * H;
            const float rate = A[token * C + s] * beta[other];
            sum += j < K ? rate * expf(g[other]) * k[other * K + j] : rate * v[other * V + j - K];
        }
        if (j < K)
            w[token * K + j] = sum;
        else
            u[token * V + j - K] = sum;
    }
}
