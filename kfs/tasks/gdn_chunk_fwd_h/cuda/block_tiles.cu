// inputs: k[B, T, H, K], w[B, T, H, K], u[B, T, H, V], g[B, T, H]
// outputs: h[B, T // 64, H, K, V] float32, v_new[B, T, H, V] float32
// let: floats = 2 * 64 * (K + 1) + 16 * K + 64 * 16 + 64
// launch: block_tiles grid=(cdiv(V, 16), B*H) block=(256,) shared=4*floats args=(k, w, u, g, h, v_new, T, H, K, V)
#define TILE 16
#define THREADS 256

extern "C" __global__ void block_tiles(const float* __restrict__ k, const float* __restrict__ w, const float* __restrict__ u,
                                       const float* __restrict__ g, float* __restrict__ h, float* __restrict__ v_new, int T,
                                       int H, int K, int V) {
    extern __shared__ float shared[];
    const int pitch = K + 1, head = blockIdx.y % H, n = T / 64, x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const int j = blockIdx.x * TILE + x;
    const long long b = blockIdx.y / H;
    float* keys = shared;
    float* reads = keys + 64 * pitch;
    float* state = reads + 64 * pitch;
    float* values = state + K * TILE;
    float* fall = values + 64 * TILE;
    for (int i = threadIdx.x; i < K * TILE; i += THREADS) state[i] = 0.0f;
    for (int c = 0; c < n; c++) {
        const long long first = (b * T + c * 64) * H + head;
        const float last = g[first + 63 * H], keep = expf(last);
        for (int e = threadIdx.x; e < 64 * K; e += THREADS) {
            const int t = e / K, i = e % K;
            keys[t * pitch + i] = k[(first + t * H) * K + i];
            reads[t * pitch + i] = w[(first + t * H) * K + i];
        }
        if (threadIdx.x < 64) fall[threadIdx.x] = expf(last - g[first + threadIdx.x * H]);
        __syncthreads();
        float dot[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int i = 0; i < K; i++) {
            const float s = state[i * TILE + x];
#pragma unroll
            for (int r = 0; r < 4; r++) dot[r] += reads[(y + 16 * r) * pitch + i] * s;
        }
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int t = y + 16 * r;
            const long long token = first + t * H;
            float v = 0.0f;
            if (j < V) {
                v = u[token * V + j] - dot[r];
                v_new[token * V + j] = v;
            }
            values[t * TILE + x] = v * fall[t];
        }
        __syncthreads();
        float* out = h + ((b * n + c) * H + head) * K * V;
        for (int i = y; i < K; i += THREADS / TILE) {
            const float old = state[i * TILE + x];
            if (j < V) out[(long long)i * V + j] = old;
            float sum = keep * old;
            for (int t = 0; t < 64; t++) sum += keys[t * pitch + i] * values[t * TILE + x];
            state[i * TILE + x] = sum;
        }
        __syncthreads();
    }
}
