// inputs: q[B, T, H, K], k[B, T, H, K], v_new[B, T, H, V], h[B, NT, H, K, V], g[B, T, H]
// outputs: o[B, T, H, V] float32
// let: C = T // NT, tokens = B * T * H
// launch: warp_token grid=(cdiv(tokens, 4),) block=(32, 4) shared=16*(C+K) args=(q, k, v_new, h, g, o, tokens, H, K, V, C)
extern "C" __global__ void warp_token(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v_new,
                                      const float* __restrict__ h, const float* __restrict__ g, float* __restrict__ o, int tokens,
                                      int H, int K, int V, int C) {
    extern __shared__ float shared[];
    const long long token = (long long)blockIdx.x * 4 + threadIdx.y;
    if (token >= tokens) return;
    float* scores = shared + threadIdx.y * (C + K);
    float* query = scores + C;
    const int lane = threadIdx.x, head = token % H, t = token / H % C;
    const long long chunk = token / H / C, first = token - (long long)t * H;
    const float here = g[token], scale = 1.0f / sqrtf((float)K);
    for (int i = lane; i < K; i += 32) query[i] = q[token * K + i];
    __syncwarp();
    for (int s = lane; s <= t; s += 32) {
        const float* key = k + (first + s * H) * K;
        float sum = 0.0f;
        for (int i = 0; i < K; i++) sum += query[i] * key[i];
        scores[s] = sum * expf(here - g[first + s * H]);
    }
    __syncwarp();
    const float* state = h + (chunk * H + head) * K * V;
    for (int j = lane; j < V; j += 32) {
        float sum = 0.0f;
        for (int i = 0; i < K; i++) sum += query[i] * state[(long long)i * V + j];
        sum *= expf(here);
        for (int s = 0; s <= t; s++) sum += scores[s] * v_new[(first + s * H) * V + j];
        o[token * V + j] = sum * scale;
    }
}
