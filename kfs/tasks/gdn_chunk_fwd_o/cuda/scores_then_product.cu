// inputs: q[B, T, H, K], k[B, T, H, K], v_new[B, T, H, V], h[B, NT, H, K, V], g[B, T, H]
// outputs: o[B, T, H, V] float32
// let: C = T // NT, chunks = B * NT * H, D = C + K
// scratch: left[chunks, C, D] float32
// launch: factors grid=(chunks, cdiv(C, 16)) block=(16, 16) args=(q, k, g, left, H, K, C)
// launch: product grid=(chunks, cdiv(C, 32), cdiv(V, 32)) block=(16, 16) args=(left, v_new, h, o, H, K, V, C)
#define DEPTH 16  // variants: 32

extern "C" __global__ void factors(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ g,
                                   float* __restrict__ left, int H, int K, int C) {
    __shared__ float query[16][17], key[16][17];
    const long long chunk = blockIdx.x, first = (chunk / H * C) * H + chunk % H;
    const int x = threadIdx.x, y = threadIdx.y, t = blockIdx.y * 16 + y;
    const long long token = first + (long long)t * H;
    const float scale = 1.0f / sqrtf((float)K), here = t < C ? g[token] : 0.0f;
    float* row = left + (chunk * C + t) * (C + K);
    for (int i = x; i < K && t < C; i += 16) row[C + i] = q[token * K + i] * expf(here) * scale;
    for (int base = 0; base < C; base += 16) {
        float sum = 0.0f;
        for (int start = 0; start < K; start += 16) {
            const bool has_k = start + x < K;
            query[y][x] = has_k && t < C ? q[token * K + start + x] : 0.0f;
            key[y][x] = has_k && base + y < C ? k[(first + (long long)(base + y) * H) * K + start + x] : 0.0f;
            __syncthreads();
            for (int i = 0; i < 16; i++) sum += query[y][i] * key[x][i];
            __syncthreads();
        }
        const int s = base + x;
        if (t < C && s < C) row[s] = s <= t ? sum * expf(here - g[first + (long long)s * H]) * scale : 0.0f;
    }
}

extern "C" __global__ void product(const float* __restrict__ left, const float* __restrict__ v_new, const float* __restrict__ h,
                                   float* __restrict__ o, int H, int K, int V, int C) {
    __shared__ float a[32][DEPTH + 1], b[DEPTH][33];
    const long long chunk = blockIdx.x, first = (chunk / H * C) * H + chunk % H;
    const int x = threadIdx.x, y = threadIdx.y, lane = y * 16 + x, top = blockIdx.y * 32, column = blockIdx.z * 32, D = C + K;
    float sum[2][2] = {};
    for (int start = 0; start < D; start += DEPTH) {
        for (int e = lane; e < 32 * DEPTH; e += 256) {
            const int t = top + e / DEPTH, d = start + e % DEPTH;
            a[e / DEPTH][e % DEPTH] = t < C && d < D ? left[(chunk * C + t) * D + d] : 0.0f;
        }
        for (int e = lane; e < 32 * DEPTH; e += 256) {
            const int d = start + e / 32, j = column + e % 32;
            float value = 0.0f;
            if (j < V && d < C)
                value = v_new[(first + (long long)d * H) * V + j];
            else if (j < V && d < D)
                value = h[(chunk * K + d - C) * V + j];
            b[e / 32][e % 32] = value;
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            for (int r = 0; r < 2; r++)
                for (int c = 0; c < 2; c++) sum[r][c] += a[y + 16 * r][d] * b[d][x + 16 * c];
        __syncthreads();
    }
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
            const int t = top + y + 16 * r, j = column + x + 16 * c;
            if (t < C && j < V) o[(first + (long long)t * H) * V + j] = sum[r][c];
        }
}
