// inputs: k[B, T, H, K], w[B, T, H, K], u[B, T, H, V], g[B, T, H]
// outputs: h[B, T // 64, H, K, V] float32, v_new[B, T, H, V] float32
// launch: thread_column grid=(cdiv(V, 32), B*H) block=(32,) shared=256*K args=(k, w, u, g, h, v_new, T, H, K, V)
#define COLUMNS 32

extern "C" __global__ void thread_column(const float* __restrict__ k, const float* __restrict__ w, const float* __restrict__ u,
                                         const float* __restrict__ g, float* __restrict__ h, float* __restrict__ v_new, int T,
                                         int H, int K, int V) {
    extern __shared__ float states[];
    const int x = threadIdx.x, j = blockIdx.x * COLUMNS + x, head = blockIdx.y % H, n = T / 64;
    const long long b = blockIdx.y / H;
    if (j >= V) return;
    float* state = states + x;
    float* next = states + K * COLUMNS + x;
    for (int i = 0; i < K; i++) state[i * COLUMNS] = 0.0f;
    for (int c = 0; c < n; c++) {
        const long long first = (b * T + c * 64) * H + head;
        float* out = h + ((b * n + c) * H + head) * K * V + j;
        const float last = g[first + 63 * H], keep = expf(last);
        for (int i = 0; i < K; i++) {
            out[(long long)i * V] = state[i * COLUMNS];
            next[i * COLUMNS] = keep * state[i * COLUMNS];
        }
        for (int t = 0; t < 64; t++) {
            const long long token = first + t * H;
            float v = u[token * V + j];
            for (int i = 0; i < K; i++) v -= w[token * K + i] * state[i * COLUMNS];
            v_new[token * V + j] = v;
            v *= expf(last - g[token]);
            for (int i = 0; i < K; i++) next[i * COLUMNS] += k[token * K + i] * v;
        }
        float* swap = state;
        state = next;
        next = swap;
    }
}
