// inputs: q[B, T, H, K], k[B, T, H, K], v_new[B, T, H, V], h[B, NT, H, K, V], g[B, T, H]
// outputs: o[B, T, H, V] float32
// let: C = T // NT, floats = 2 * C * (K + 1) + C * C + C
// launch: block_chunk grid=(B*NT, H) block=(256,) shared=4*floats args=(q, k, v_new, h, g, o, H, K, V, C)
extern "C" __global__ void block_chunk(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v_new,
                                       const float* __restrict__ h, const float* __restrict__ g, float* __restrict__ o, int H,
                                       int K, int V, int C) {
    extern __shared__ float shared[];
    float* queries = shared;
    float* keys = queries + C * (K + 1);
    float* scores = keys + C * (K + 1);
    float* gates = scores + C * C;
    const long long first = (long long)blockIdx.x * C * H + blockIdx.y;
    const float* state = h + ((long long)blockIdx.x * H + blockIdx.y) * K * V;
    const float scale = 1.0f / sqrtf((float)K);
    for (int e = threadIdx.x; e < C * K; e += blockDim.x) {
        const int t = e / K, i = e % K;
        queries[t * (K + 1) + i] = q[(first + t * H) * K + i];
        keys[t * (K + 1) + i] = k[(first + t * H) * K + i];
    }
    for (int t = threadIdx.x; t < C; t += blockDim.x) gates[t] = g[first + t * H];
    __syncthreads();
    for (int e = threadIdx.x; e < C * C; e += blockDim.x) {
        const int t = e / C, s = e % C;
        if (s > t) continue;
        float sum = 0.0f;
        for (int i = 0; i < K; i++) sum += queries[t * (K + 1) + i] * keys[s * (K + 1) + i];
        scores[e] = sum * expf(gates[t] - gates[s]);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < C * V; e += blockDim.x) {
        const int t = e / V, j = e % V;
        float before = 0.0f, inside = 0.0f;
        for (int i = 0; i < K; i++) before += queries[t * (K + 1) + i] * state[(long long)i * V + j];
        for (int s = 0; s <= t; s++) inside += scores[t * C + s] * v_new[(first + s * H) * V + j];
        o[(first + t * H) * V + j] = scale * (expf(gates[t]) * before + inside);
    }
}
