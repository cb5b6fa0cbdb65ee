// inputs: k[B, T, H, K], v[B, T, H, V], beta[B, T, H], A[B, T, H, C], g[B, T, H]
// outputs: w[B, T, H, K] float32, u[B, T, H, V] float32
// let: floats = C * (C + 1) + C * (K + V)
// launch: block_chunk grid=(B*T//C, H) block=(256,) shared=4*floats args=(k, v, beta, A, g, w, u, H, K, V, C)
extern "C" __global__ void block_chunk(const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ beta,
                                       const float* __restrict__ A, const float* __restrict__ g, float* __restrict__ w,
                                       float* __restrict__ u, int H, int K, int V, int C) {
    extern __shared__ float shared[];
    float* a = shared;
    float* right = shared + C * (C + 1);
    const int D = K + V;
    const long long first = (long long)blockIdx.x * C * H + blockIdx.y;
    for (int e = threadIdx.x; e < C * C; e += blockDim.x) a[e / C * (C + 1) + e % C] = A[(first + e / C * H) * C + e % C];
    for (int e = threadIdx.x; e < C * K; e += blockDim.x) {
        const long long token = first + e / K * H;
        right[e / K * D + e % K] = k[token * K + e % K] * beta[token] * expf(g[token]);
    }
    for (int e = threadIdx.x; e < C * V; e += blockDim.x) {
        const long long token = first + e / V * H;
        right[e / V * D + K + e % V] = v[token * V + e % V] * beta[token];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < C * D; e += blockDim.x) {
        const int t = e / D, j = e % D;
        float sum = 0.0f;
        for (int s = 0; s <= t; s++) sum += a[t * (C + 1) + s] * right[s * D + j];
        const long long token = first + t * H;
        if (j < K)
            w[token * K + j] = sum;
        else
            u[token * V + j - K] = sum;
    }
}
