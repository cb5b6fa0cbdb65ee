// inputs: k[B, T, H, K], v[B, T, H, V], beta[B, T, H], A[B, T, H, C], g[B, T, H]
// outputs: w[B, T, H, K] float32, u[B, T, H, V] float32
// let: P = 4 * cdiv(K + V, 4), chunks = B * T // C * H
// scratch: packed[chunks, C, P] float32
// launch: pack grid=(cdiv(chunks*C*P, 256),) block=(256,) args=(k, v, beta, g, packed, chunks, H, K, V, C, P)
// launch: product grid=(chunks, cdiv(C, 4)) block=(32, 4) args=(A, packed, w, u, H, K, V, C, P)
extern "C" __global__ void pack(const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ beta,
                                const float* __restrict__ g, float* __restrict__ packed, int chunks, int H, int K, int V, int C,
                                int P) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)chunks * C * P) return;
    const int j = at % P, t = at / P % C;
    const long long chunk = at / P / C, token = (chunk / H * C + t) * H + chunk % H;
    float value = 0.0f;
    if (j < K)
        value = k[token * K + j] * beta[token] * expf(g[token]);
    else if (j < K + V)
        value = v[token * V + j - K] * beta[token];
    packed[at] = value;
}

extern "C" __global__ void product(const float* __restrict__ A, const float* __restrict__ packed, float* __restrict__ w,
                                   float* __restrict__ u, int H, int K, int V, int C, int P) {
    const long long chunk = blockIdx.x;
    const int t = blockIdx.y * 4 + threadIdx.y;
    if (t >= C) return;
    const long long token = (chunk / H * C + t) * H + chunk % H;
    const float4* right = reinterpret_cast<const float4*>(packed + chunk * C * P);
    for (int quad = threadIdx.x; quad < P / 4; quad += 32) {
        float sum[4] = {};
        for (int s = 0; s <= t; s++) {
            const float a = A[token * C + s];
            const float4 x = right[s * (P / 4) + quad];
            sum[0] += a * x.x;
            sum[1] += a * x.y;
            sum[2] += a * x.z;
            sum[3] += a * x.w;
        }
        for (int q = 0; q < 4; q++) {
            const int j = 4 * quad + q;
            if (j < K)
                w[token * K + j] = sum[q];
            else if (j < K + V)
                u[token * V + j - K] = sum[q];
        }
    }
}
