// inputs: x[b, s, s, dim], mask[b, s, s], norm_scale[dim], norm_bias[dim], left_proj[hidden, dim], right_proj[hidden, dim]
// inputs: left_gate[hidden, dim], right_gate[hidden, dim], out_gate[hidden, dim], out_scale[hidden], out_bias[hidden]
// inputs: to_out[dim, hidden]
// outputs: y[b, s, s, dim] float32
// let: area = s * s, pixels = b * area, planes = b * hidden, wide = 5 * hidden
// scratch: weights[dim, wide] float32, left[pixels, hidden] float32, right[pixels, hidden] float32, gate[pixels, hidden] float32
// launch: transpose grid=(cdiv(wide*dim, 256),) block=(256,) args=(left_proj, right_proj, left_gate, right_gate, out_gate, weights, dim, hidden)
// launch: project grid=(cdiv(pixels, 4),) block=(128,) shared=16*(dim+wide) args=(x, mask, norm_scale, norm_bias, weights, left, right, gate, pixels, dim, hidden)
// launch: pairs grid=(cdiv(s, 4), s, b) block=(128,) shared=16*hidden args=(left, right, gate, out_scale, out_bias, to_out, y, s, dim, hidden)
#define THREADS 128
#define PIXELS 4

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    return value;
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

__device__ void normalise(float* row, const float* __restrict__ scale, const float* __restrict__ bias, int n) {
    const int lane = threadIdx.x % 32;
    float mean = 0.0f, square = 0.0f;
    for (int c = lane; c < n; c += 32) mean += row[c];
    mean = warp_sum(mean) / n;
    for (int c = lane; c < n; c += 32) square += (row[c] - mean) * (row[c] - mean);
    const float rstd = rsqrtf(warp_sum(square) / n + 1e-5f);
    for (int c = lane; c < n; c += 32) row[c] = (row[c] - mean) * rstd * scale[c] + bias[c];
}

extern "C" __global__ void transpose(const float* __restrict__ left_proj, const float* __restrict__ right_proj,
                                     const float* __restrict__ left_gate, const float* __restrict__ right_gate,
                                     const float* __restrict__ out_gate, float* __restrict__ weights, int dim, int hidden) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= 5 * hidden * dim) return;
    const int column = at / dim, c = at % dim, part = column / hidden, d = column % hidden;
    const float* source = part == 0 ? left_proj : part == 1 ? right_proj : part == 2 ? left_gate : part == 3 ? right_gate : out_gate;
    weights[c * 5 * hidden + column] = source[d * dim + c];
}

extern "C" __global__ void project(const float* __restrict__ x, const float* __restrict__ mask, const float* __restrict__ scale,
                                   const float* __restrict__ bias, const float* __restrict__ weights, float* __restrict__ left,
                                   float* __restrict__ right, float* __restrict__ gate, int pixels, int dim, int hidden) {
    extern __shared__ float shared[];
    float* rows = shared;
    float* results = shared + PIXELS * dim;
    const long long p0 = (long long)blockIdx.x * PIXELS;
    const int t = threadIdx.x, wide = 5 * hidden;
    for (int e = t; e < PIXELS * dim; e += THREADS) rows[e] = p0 + e / dim < pixels ? x[p0 * dim + e] : 0.0f;
    __syncthreads();
    normalise(rows + t / 32 * dim, scale, bias, dim);
    __syncthreads();
    for (int column = t; column < wide; column += THREADS) {
        float sums[PIXELS] = {};
        for (int c = 0; c < dim; c++) {
            const float w = weights[c * wide + column];
#pragma unroll
            for (int q = 0; q < PIXELS; q++) sums[q] += rows[q * dim + c] * w;
        }
        for (int q = 0; q < PIXELS; q++) results[q * wide + column] = sums[q];
    }
    __syncthreads();
    for (int e = t; e < PIXELS * hidden; e += THREADS) {
        const long long p = p0 + e / hidden;
        if (p >= pixels) break;
        const float* row = results + e / hidden * wide + e % hidden;
        const float keep = mask[p];
        left[p * hidden + e % hidden] = row[0] * sigmoid(row[2 * hidden]) * keep;
        right[p * hidden + e % hidden] = row[hidden] * sigmoid(row[3 * hidden]) * keep;
        gate[p * hidden + e % hidden] = sigmoid(row[4 * hidden]);
    }
}

extern "C" __global__ void pairs(const float* __restrict__ left, const float* __restrict__ right, const float* __restrict__ gate,
                                 const float* __restrict__ scale, const float* __restrict__ bias,
                                 const float* __restrict__ to_out, float* __restrict__ y, int s, int dim, int hidden) {
    extern __shared__ float rows[];
    const int t = threadIdx.x, j0 = blockIdx.x * PIXELS;
    const long long i = (long long)blockIdx.z * s + blockIdx.y, base = (long long)blockIdx.z * s;
    for (int d = t; d < hidden; d += THREADS) {
        float sums[PIXELS] = {};
        for (int k = 0; k < s; k++) {
            const float l = left[(i * s + k) * hidden + d];
#pragma unroll
            for (int q = 0; q < PIXELS; q++) sums[q] += l * right[((base + min(j0 + q, s - 1)) * s + k) * hidden + d];
        }
        for (int q = 0; q < PIXELS; q++) rows[q * hidden + d] = sums[q];
    }
    __syncthreads();
    normalise(rows + t / 32 * hidden, scale, bias, hidden);
    __syncthreads();
    for (int e = t; e < PIXELS * hidden; e += THREADS) {
        const int j = j0 + e / hidden;
        if (j < s) rows[e] *= gate[(i * s + j) * hidden + e % hidden];
    }
    __syncthreads();
    for (int c = t; c < dim; c += THREADS) {
        float sums[PIXELS] = {};
        for (int d = 0; d < hidden; d++) {
            const float w = to_out[c * hidden + d];
#pragma unroll
            for (int q = 0; q < PIXELS; q++) sums[q] += rows[q * hidden + d] * w;
        }
        for (int q = 0; q < PIXELS; q++)
            if (j0 + q < s) y[(i * s + j0 + q) * dim + c] = sums[q];
    }
}
