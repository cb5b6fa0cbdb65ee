// inputs: k[B, T, H, K], v[B, T, H, V], beta[B, T, H], A[B, T, H, C], g[B, T, H]
// outputs: w[B, T, H, K] float32, u[B, T, H, V] float32
// let: parts = cdiv(K, 32) + cdiv(V, 32)
// launch: register_tiles grid=(B*T//C, H, parts) block=(16, 16) args=(k, v, beta, A, g, w, u, H, K, V, C)
#define DEPTH 16  // variants: 8, 32

extern "C" __global__ void register_tiles(const float* __restrict__ k, const float* __restrict__ v,
                                          const float* __restrict__ beta, const float* __restrict__ A,
                                          const float* __restrict__ g, float* __restrict__ w, float* __restrict__ u, int H, int K,
                                          int V, int C) {
    __shared__ float left[DEPTH][65], right[DEPTH][33];
    const int key_parts = (K + 31) / 32, part = blockIdx.z, x = threadIdx.x, y = threadIdx.y, lane = y * 16 + x;
    const bool is_key = part < key_parts;
    const int D = is_key ? K : V, column = 32 * (is_key ? part : part - key_parts);
    const float* source = is_key ? k : v;
    float* target = is_key ? w : u;
    const long long first = (long long)blockIdx.x * C * H + blockIdx.y;
    for (int top = 0; top < C; top += 64) {
        float sum[4][2] = {};
        const int depth = min(C, top + 64);
        for (int start = 0; start < depth; start += DEPTH) {
            for (int e = lane; e < 64 * DEPTH; e += 256) {
                const int t = top + e / DEPTH, s = start + e % DEPTH;
                left[e % DEPTH][e / DEPTH] = t < C && s < C ? A[(first + (long long)t * H) * C + s] : 0.0f;
            }
            for (int e = lane; e < 32 * DEPTH; e += 256) {
                const int s = start + e / 32, j = column + e % 32;
                float value = 0.0f;
                if (s < C && j < D) {
                    const long long token = first + (long long)s * H;
                    value = source[token * D + j] * beta[token] * (is_key ? expf(g[token]) : 1.0f);
                }
                right[e / 32][e % 32] = value;
            }
            __syncthreads();
#pragma unroll
            for (int s = 0; s < DEPTH; s++)
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int q = 0; q < 2; q++) sum[r][q] += left[s][y + 16 * r] * right[s][x + 16 * q];
            __syncthreads();
        }
        for (int r = 0; r < 4; r++)
            for (int q = 0; q < 2; q++) {
                const int t = top + y + 16 * r, j = column + x + 16 * q;
                if (t < C && j < D) target[(first + (long long)t * H) * D + j] = sum[r][q];
            }
    }
}
