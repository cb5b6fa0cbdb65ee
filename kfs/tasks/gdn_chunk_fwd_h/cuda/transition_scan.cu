// inputs: k[B, T, H, K], w[B, T, H, K], u[B, T, H, V], g[B, T, H]
// outputs: h[B, T // 64, H, K, V] float32, v_new[B, T, H, V] float32
// let: n = T // 64
// scratch: step[B, n, H, K, K] float32, gain[B, n, H, K, V] float32
// launch: transitions grid=(B*n, H) block=(256,) args=(k, w, u, g, step, gain, H, K, V)
// launch: scan grid=(B*H, cdiv(V, 32)) block=(32, 8) shared=256*K args=(step, gain, h, n, H, K, V)
// launch: corrected grid=(B*n, H) block=(256,) args=(w, u, h, v_new, H, K, V)
extern "C" __global__ void transitions(const float* __restrict__ k, const float* __restrict__ w, const float* __restrict__ u,
                                       const float* __restrict__ g, float* __restrict__ step, float* __restrict__ gain, int H,
                                       int K, int V) {
    __shared__ float fall[64];
    const long long first = (long long)blockIdx.x * 64 * H + blockIdx.y, at = (long long)blockIdx.x * H + blockIdx.y;
    const float last = g[first + 63 * H], keep = expf(last);
    if (threadIdx.x < 64) fall[threadIdx.x] = expf(last - g[first + threadIdx.x * H]);
    __syncthreads();
    for (int e = threadIdx.x; e < K * (K + V); e += blockDim.x) {
        const int i = e / (K + V), j = e % (K + V);
        const float* right = j < K ? w + j : u + j - K;
        const int width = j < K ? K : V;
        float sum = 0.0f;
        for (int t = 0; t < 64; t++) {
            const long long token = first + t * H;
            sum += k[token * K + i] * fall[t] * right[token * width];
        }
        if (j < K)
            step[(at * K + i) * K + j] = (i == j ? keep : 0.0f) - sum;
        else
            gain[(at * K + i) * V + j - K] = sum;
    }
}

extern "C" __global__ void scan(const float* __restrict__ step, const float* __restrict__ gain, float* __restrict__ h, int n,
                                int H, int K, int V) {
    extern __shared__ float states[];
    const int x = threadIdx.x, j = blockIdx.y * 32 + x, head = blockIdx.x % H;
    const long long b = blockIdx.x / H;
    float* state = states;
    float* next = states + 32 * K;
    for (int i = threadIdx.y; i < K; i += 8) state[i * 32 + x] = 0.0f;
    __syncthreads();
    for (int c = 0; c < n; c++) {
        const long long at = (b * n + c) * H + head;
        for (int i = threadIdx.y; i < K; i += 8) {
            float sum = 0.0f;
            if (j < V) {
                h[(at * K + i) * V + j] = state[i * 32 + x];
                sum = gain[(at * K + i) * V + j];
            }
            for (int m = 0; m < K; m++) sum += step[(at * K + i) * K + m] * state[m * 32 + x];
            next[i * 32 + x] = sum;
        }
        __syncthreads();
        float* swap = state;
        state = next;
        next = swap;
    }
}

extern "C" __global__ void corrected(const float* __restrict__ w, const float* __restrict__ u, const float* __restrict__ h,
                                     float* __restrict__ v_new, int H, int K, int V) {
    const long long first = (long long)blockIdx.x * 64 * H + blockIdx.y;
    const float* state = h + ((long long)blockIdx.x * H + blockIdx.y) * K * V;
    for (int e = threadIdx.x; e < 64 * V; e += blockDim.x) {
        const int t = e / V, j = e % V;
        const long long token = first + t * H;
        float v = u[token * V + j];
        for (int i = 0; i < K; i++) v -= w[token * K + i] * state[(long long)i * V + j];
        v_new[token * V + j] = v;
    }
}
