// inputs: k[B, T, H, K], w[B, T, H, K], u[B, T, H, V], g[B, T, H]
// outputs: h[B, T // 64, H, K, V] float32, v_new[B, T, H, V] float32
// launch: warp_column grid=(cdiv(V, 4), B*H) block=(32, 4) shared=32*K args=(k, w, u, g, h, v_new, T, H, K, V)
extern "C" __global__ void warp_column(const float* __restrict__ k, const float* __restrict__ w, const float* __restrict__ u,
                                       const float* __restrict__ g, float* __restrict__ h, float* __restrict__ v_new, int T,
                                       int H, int K, int V) {
    extern __shared__ float states[];
    const int lane = threadIdx.x, j = blockIdx.x * 4 + threadIdx.y, head = blockIdx.y % H, n = T / 64;
    const long long b = blockIdx.y / H;
    if (j >= V) return;
    float* state = states + threadIdx.y * K;
    float* next = states + (4 + threadIdx.y) * K;
    for (int i = lane; i < K; i += 32) state[i] = 0.0f;
    for (int c = 0; c < n; c++) {
        const long long first = (b * T + c * 64) * H + head;
        float* out = h + ((b * n + c) * H + head) * K * V;
        const float last = g[first + 63 * H], keep = expf(last);
        for (int i = lane; i < K; i += 32) {
            out[(long long)i * V + j] = state[i];
            next[i] = keep * state[i];
        }
        for (int t = 0; t < 64; t++) {
            const long long token = first + t * H;
            float dot = 0.0f;
            for (int i = lane; i < K; i += 32) dot += w[token * K + i] * state[i];
            for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffff, dot, step);
            const float v = u[token * V + j] - dot;
            if (lane == 0) v_new[token * V + j] = v;
            const float scaled = v * expf(last - g[token]);
            for (int i = lane; i < K; i += 32) next[i] += k[token * K + i] * scaled;
        }
        float* swap = state;
        state = next;
        next = swap;
    }
}
