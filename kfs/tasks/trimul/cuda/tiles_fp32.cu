// inputs: x[b, s, s, dim], mask[b, s, s], norm_scale[dim], norm_bias[dim], left_proj[hidden, dim], right_proj[hidden, dim]
// inputs: left_gate[hidden, dim], right_gate[hidden, dim], out_gate[hidden, dim], out_scale[hidden], out_bias[hidden]
// inputs: to_out[dim, hidden]
// outputs: y[b, s, s, dim] float32
// let: area = s * s, pixels = b * area, planes = b * hidden
// scratch: normed[pixels, dim] float32, left[planes, area] float32, right[planes, area] float32
// scratch: gate[planes, area] float32, out[planes, area] float32, gated[pixels, hidden] float32
// launch: normalise grid=(cdiv(pixels, 8),) block=(32, 8) args=(x, norm_scale, norm_bias, normed, pixels, dim)
// launch: side grid=(cdiv(pixels, 64), cdiv(hidden, 64)) block=(16, 16) args=(normed, mask, left_proj, left_gate, left, pixels, area, dim, hidden)
// launch: side grid=(cdiv(pixels, 64), cdiv(hidden, 64)) block=(16, 16) args=(normed, mask, right_proj, right_gate, right, pixels, area, dim, hidden)
// launch: out_gates grid=(cdiv(pixels, 64), cdiv(hidden, 64)) block=(16, 16) args=(normed, out_gate, gate, pixels, area, dim, hidden)
// launch: triangle grid=(cdiv(s, 64), cdiv(s, 64), planes) block=(16, 16) args=(left, right, out, s)
// launch: norm_gate grid=(cdiv(pixels, 128),) block=(128,) args=(out, gate, out_scale, out_bias, gated, pixels, area, hidden)
// launch: output grid=(cdiv(pixels, 64), cdiv(dim, 64)) block=(16, 16) args=(gated, to_out, y, pixels, dim, hidden)
#define DEPTH 16  // variants: 8, 32

typedef float Sums[4][4];

__device__ void multiply(const float* __restrict__ a, const float* __restrict__ b, long long m0, long long n0, long long M,
                         long long N, int K, Sums sums) {
    __shared__ float left[DEPTH][65], right[DEPTH][65];
    const int x = threadIdx.x, y = threadIdx.y, lane = y * 16 + x;
    for (int start = 0; start < K; start += DEPTH) {
        for (int e = lane; e < 64 * DEPTH; e += 256) {
            const int row = e / DEPTH, k = e % DEPTH;
            const bool has_k = start + k < K;
            left[k][row] = has_k && m0 + row < M ? a[(m0 + row) * K + start + k] : 0.0f;
            right[k][row] = has_k && n0 + row < N ? b[(n0 + row) * K + start + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float column[4];
#pragma unroll
            for (int c = 0; c < 4; c++) column[c] = right[k][x + 16 * c];
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) sums[r][c] += left[k][y + 16 * r] * column[c];
        }
        __syncthreads();
    }
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

extern "C" __global__ void normalise(const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ bias,
                                     float* __restrict__ normed, int pixels, int dim) {
    const long long p = (long long)blockIdx.x * 8 + threadIdx.y;
    if (p >= pixels) return;
    const float* row = x + p * dim;
    float mean = 0.0f, square = 0.0f;
    for (int c = threadIdx.x; c < dim; c += 32) mean += row[c];
    for (int step = 16; step > 0; step /= 2) mean += __shfl_xor_sync(0xffffffff, mean, step);
    mean /= dim;
    for (int c = threadIdx.x; c < dim; c += 32) square += (row[c] - mean) * (row[c] - mean);
    for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(0xffffffff, square, step);
    const float rstd = rsqrtf(square / dim + 1e-5f);
    for (int c = threadIdx.x; c < dim; c += 32) normed[p * dim + c] = (row[c] - mean) * rstd * scale[c] + bias[c];
}

extern "C" __global__ void side(const float* __restrict__ normed, const float* __restrict__ mask, const float* __restrict__ proj,
                                const float* __restrict__ gate, float* __restrict__ result, int pixels, int area, int dim,
                                int hidden) {
    const long long p0 = (long long)blockIdx.x * 64;
    const int d0 = blockIdx.y * 64;
    Sums values = {}, gates = {};
    multiply(proj, normed, d0, p0, hidden, pixels, dim, values);
    multiply(gate, normed, d0, p0, hidden, pixels, dim, gates);
    for (int c = 0; c < 4; c++) {
        const long long p = p0 + threadIdx.x + 16 * c;
        if (p >= pixels) continue;
        for (int r = 0; r < 4; r++) {
            const int d = d0 + threadIdx.y + 16 * r;
            if (d < hidden) result[(p / area * hidden + d) * area + p % area] = values[r][c] * sigmoid(gates[r][c]) * mask[p];
        }
    }
}

extern "C" __global__ void out_gates(const float* __restrict__ normed, const float* __restrict__ proj, float* __restrict__ gate,
                                     int pixels, int area, int dim, int hidden) {
    const long long p0 = (long long)blockIdx.x * 64;
    const int d0 = blockIdx.y * 64;
    Sums gates = {};
    multiply(proj, normed, d0, p0, hidden, pixels, dim, gates);
    for (int c = 0; c < 4; c++) {
        const long long p = p0 + threadIdx.x + 16 * c;
        if (p >= pixels) continue;
        for (int r = 0; r < 4; r++) {
            const int d = d0 + threadIdx.y + 16 * r;
            if (d < hidden) gate[(p / area * hidden + d) * area + p % area] = sigmoid(gates[r][c]);
        }
    }
}

extern "C" __global__ void triangle(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out,
                                    int s) {
    const long long plane = (long long)blockIdx.z * s * s;
    const int i0 = blockIdx.y * 64, j0 = blockIdx.x * 64;
    Sums sums = {};
    multiply(left + plane, right + plane, i0, j0, s, s, s, sums);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int i = i0 + threadIdx.y + 16 * r, j = j0 + threadIdx.x + 16 * c;
            if (i < s && j < s) out[plane + (long long)i * s + j] = sums[r][c];
        }
}

extern "C" __global__ void norm_gate(const float* __restrict__ out, const float* __restrict__ gate,
                                     const float* __restrict__ scale, const float* __restrict__ bias, float* __restrict__ gated,
                                     int pixels, int area, int hidden) {
    const long long p = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    const long long at = p / area * hidden * area + p % area;
    float mean = 0.0f, square = 0.0f;
    for (int d = 0; d < hidden; d++) mean += out[at + (long long)d * area];
    mean /= hidden;
    for (int d = 0; d < hidden; d++) {
        const float gap = out[at + (long long)d * area] - mean;
        square += gap * gap;
    }
    const float rstd = rsqrtf(square / hidden + 1e-5f);
    for (int d = 0; d < hidden; d++) {
        const long long here = at + (long long)d * area;
        gated[p * hidden + d] = ((out[here] - mean) * rstd * scale[d] + bias[d]) * gate[here];
    }
}

extern "C" __global__ void output(const float* __restrict__ gated, const float* __restrict__ to_out, float* __restrict__ y,
                                  int pixels, int dim, int hidden) {
    const long long p0 = (long long)blockIdx.x * 64;
    const int c0 = blockIdx.y * 64;
    Sums sums = {};
    multiply(gated, to_out, p0, c0, pixels, dim, hidden, sums);
    for (int r = 0; r < 4; r++)
        for (int q = 0; q < 4; q++) {
            const long long p = p0 + threadIdx.y + 16 * r;
            const int c = c0 + threadIdx.x + 16 * q;
            if (p < pixels && c < dim) y[p * dim + c] = sums[r][q];
        }
}
