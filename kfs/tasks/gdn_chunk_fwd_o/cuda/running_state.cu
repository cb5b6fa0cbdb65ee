// inputs: q[B, T, H, K], k[B, T, H, K], v_new[B, T, H, V], h[B, NT, H, K, V], g[B, T, H]
// outputs: o[B, T, H, V] float32
// launch: running_state grid=(cdiv(V, 32), B*NT, H) block=(32,) shared=128*K args=(q, k, v_new, h, g, o, H, K, V, T // NT)
#define COLUMNS 32

extern "C" __global__ void running_state(const float* __restrict__ q, const float* __restrict__ k,
                                         const float* __restrict__ v_new, const float* __restrict__ h,
                                         const float* __restrict__ g, float* __restrict__ o, int H, int K, int V, int C) {
    extern __shared__ float state[];
    const int x = threadIdx.x, j = blockIdx.x * COLUMNS + x, head = blockIdx.z;
    if (j >= V) return;
    const long long chunk = blockIdx.y, start = (chunk * H + head) * K * V;
    const float scale = 1.0f / sqrtf((float)K);
    for (int i = 0; i < K; i++) state[i * COLUMNS + x] = h[start + (long long)i * V + j];
    float before = 0.0f;
    for (int t = 0; t < C; t++) {
        const long long token = (chunk * C + t) * H + head;
        const float now = g[token], step = expf(now - before), v = v_new[token * V + j];
        float sum = 0.0f;
        for (int i = 0; i < K; i++) {
            const float s = state[i * COLUMNS + x] * step + k[token * K + i] * v;
            state[i * COLUMNS + x] = s;
            sum += q[token * K + i] * s;
        }
        o[token * V + j] = sum * scale;
        before = now;
    }
}
