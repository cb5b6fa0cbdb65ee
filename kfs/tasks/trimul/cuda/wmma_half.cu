// inputs: x[b, s, s, dim], mask[b, s, s], norm_scale[dim], norm_bias[dim], left_proj[hidden, dim], right_proj[hidden, dim]
// inputs: left_gate[hidden, dim], right_gate[hidden, dim], out_gate[hidden, dim], out_scale[hidden], out_bias[hidden]
// inputs: to_out[dim, hidden]
// outputs: y[b, s, s, dim] float32
// let: area = s * s, pixels = b * area, planes = b * hidden, padded = 16 * cdiv(s, 16), square = padded * padded
// let: deep = 16 * cdiv(dim, 16), high = 16 * cdiv(hidden, 16), rows = 16 * cdiv(pixels, 16)
// scratch: normed[rows, deep] float16, weights[5, high, deep] float16, left[planes, square] float16, right[planes, square] float16
// scratch: gate[pixels, hidden] float32, out[planes, square] float32
// launch: normalise grid=(cdiv(rows, 4),) block=(32, 4) args=(x, norm_scale, norm_bias, normed, rows, pixels, dim, deep)
// launch: pack grid=(cdiv(high*deep, 256), 5) block=(256,) args=(left_proj, right_proj, left_gate, right_gate, out_gate, weights, dim, deep, hidden, high)
// launch: clear grid=(cdiv(square, 256), planes) block=(256,) args=(left, right, s, padded)
// launch: project grid=(rows//16, cdiv(high//16, 4)) block=(32, 4) args=(normed, weights, mask, left, right, gate, pixels, s, padded, deep, hidden, high)
// launch: triangle grid=(cdiv(padded//16, 4), cdiv(padded//16, 2), planes) block=(32, 4) args=(left, right, out, padded)
// launch: finish grid=(cdiv(pixels, 16),) block=(256,) shared=64*hidden args=(out, gate, out_scale, out_bias, to_out, y, pixels, s, padded, dim, hidden)
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

typedef wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> Left;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> Right;
typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> Tile;

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    return value;
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

extern "C" __global__ void normalise(const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ bias,
                                     __half* __restrict__ normed, int rows, int pixels, int dim, int deep) {
    const long long p = (long long)blockIdx.x * 4 + threadIdx.y;
    if (p >= rows) return;
    __half* result = normed + p * deep;
    float mean = 0.0f, square = 0.0f;
    const int width = p < pixels ? dim : 0;
    for (int c = threadIdx.x; c < width; c += 32) mean += x[p * dim + c];
    mean = warp_sum(mean) / dim;
    for (int c = threadIdx.x; c < width; c += 32) square += (x[p * dim + c] - mean) * (x[p * dim + c] - mean);
    const float rstd = rsqrtf(warp_sum(square) / dim + 1e-5f);
    for (int c = threadIdx.x; c < deep; c += 32)
        result[c] = __float2half(c < width ? (x[p * dim + c] - mean) * rstd * scale[c] + bias[c] : 0.0f);
}

extern "C" __global__ void pack(const float* __restrict__ left_proj, const float* __restrict__ right_proj,
                                const float* __restrict__ left_gate, const float* __restrict__ right_gate,
                                const float* __restrict__ out_gate, __half* __restrict__ weights, int dim, int deep, int hidden,
                                int high) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, part = blockIdx.y;
    if (at >= high * deep) return;
    const int d = at / deep, c = at % deep;
    const float* source = part == 0 ? left_proj : part == 1 ? right_proj : part == 2 ? left_gate : part == 3 ? right_gate : out_gate;
    weights[part * high * deep + at] = __float2half(d < hidden && c < dim ? source[d * dim + c] : 0.0f);
}

extern "C" __global__ void clear(__half* __restrict__ left, __half* __restrict__ right, int s, int padded) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= padded * padded || (at / padded < s && at % padded < s)) return;
    const long long plane = (long long)blockIdx.y * padded * padded;
    left[plane + at] = __float2half(0.0f);
    right[plane + at] = __float2half(0.0f);
}

extern "C" __global__ void project(const __half* __restrict__ normed, const __half* __restrict__ weights,
                                   const float* __restrict__ mask, __half* __restrict__ left, __half* __restrict__ right,
                                   float* __restrict__ gate, int pixels, int s, int padded, int deep, int hidden, int high) {
    __shared__ __align__(32) float tiles[4][256];
    const int lane = threadIdx.x, d0 = (blockIdx.y * 4 + threadIdx.y) * 16;
    if (d0 >= high) return;
    const long long p0 = (long long)blockIdx.x * 16, square = (long long)padded * padded;
    float* tile = tiles[threadIdx.y];
    Tile sums[5];
#pragma unroll
    for (int part = 0; part < 5; part++) wmma::fill_fragment(sums[part], 0.0f);
    for (int c = 0; c < deep; c += 16) {
        Left a;
        wmma::load_matrix_sync(a, normed + p0 * deep + c, deep);
#pragma unroll
        for (int part = 0; part < 5; part++) {
            Right w;
            wmma::load_matrix_sync(w, weights + (part * high + d0) * deep + c, deep);
            wmma::mma_sync(sums[part], a, w, sums[part]);
        }
    }
#pragma unroll
    for (int part = 0; part < 3; part++) {
        if (part < 2)
            for (int e = 0; e < sums[part].num_elements; e++) sums[part].x[e] *= sigmoid(sums[part + 2].x[e]);
        wmma::store_matrix_sync(tile, sums[part < 2 ? part : 4], 16, wmma::mem_row_major);
        __syncwarp();
        for (int e = lane; e < 256; e += 32) {
            const long long p = p0 + e % 16;
            const int d = d0 + e / 16;
            if (p >= pixels || d >= hidden) continue;
            const float value = tile[e % 16 * 16 + e / 16];
            const long long batch = p / s / s, at = (batch * hidden + d) * square + p / s % s * padded + p % s;
            if (part == 0)
                left[at] = __float2half(value * mask[p]);
            else if (part == 1)
                right[at] = __float2half(value * mask[p]);
            else
                gate[p * hidden + d] = sigmoid(value);
        }
        __syncwarp();
    }
}

extern "C" __global__ void triangle(const __half* __restrict__ left, const __half* __restrict__ right, float* __restrict__ out,
                                    int padded) {
    const long long plane = (long long)blockIdx.z * padded * padded;
    const int i0 = (blockIdx.y * 2 + threadIdx.y / 2) * 16, j0 = (blockIdx.x * 4 + threadIdx.y % 2 * 2) * 16;
    if (i0 >= padded || j0 >= padded) return;
    const bool both = j0 + 16 < padded;
    Tile first, second;
    wmma::fill_fragment(first, 0.0f);
    wmma::fill_fragment(second, 0.0f);
    for (int k = 0; k < padded; k += 16) {
        Left a;
        Right w;
        wmma::load_matrix_sync(a, left + plane + (long long)i0 * padded + k, padded);
        wmma::load_matrix_sync(w, right + plane + (long long)j0 * padded + k, padded);
        wmma::mma_sync(first, a, w, first);
        if (both) {
            wmma::load_matrix_sync(w, right + plane + (long long)(j0 + 16) * padded + k, padded);
            wmma::mma_sync(second, a, w, second);
        }
    }
    float* result = out + plane + (long long)i0 * padded + j0;
    wmma::store_matrix_sync(result, first, padded, wmma::mem_row_major);
    if (both) wmma::store_matrix_sync(result + 16, second, padded, wmma::mem_row_major);
}

extern "C" __global__ void finish(const float* __restrict__ out, const float* __restrict__ gate, const float* __restrict__ scale,
                                  const float* __restrict__ bias, const float* __restrict__ to_out, float* __restrict__ y,
                                  int pixels, int s, int padded, int dim, int hidden) {
    extern __shared__ float rows[];
    const long long p0 = (long long)blockIdx.x * 16;
    const int live = (int)min(16LL, pixels - p0), lane = threadIdx.x % 32;
    for (int e = threadIdx.x; e < 16 * hidden; e += blockDim.x) {
        const long long p = p0 + e % 16;
        const int d = e / 16;
        if (p < pixels) rows[e % 16 * hidden + d] = out[(p / s / s * hidden + d) * padded * padded + p / s % s * padded + p % s];
    }
    __syncthreads();
    for (int q = threadIdx.x / 32; q < live; q += 8) {
        float* row = rows + q * hidden;
        float mean = 0.0f, square = 0.0f;
        for (int d = lane; d < hidden; d += 32) mean += row[d];
        mean = warp_sum(mean) / hidden;
        for (int d = lane; d < hidden; d += 32) square += (row[d] - mean) * (row[d] - mean);
        const float rstd = rsqrtf(warp_sum(square) / hidden + 1e-5f);
        for (int d = lane; d < hidden; d += 32)
            row[d] = ((row[d] - mean) * rstd * scale[d] + bias[d]) * gate[(p0 + q) * hidden + d];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < dim; c += blockDim.x) {
        float sums[16] = {};
        for (int d = 0; d < hidden; d++) {
            const float w = to_out[c * hidden + d];
#pragma unroll
            for (int q = 0; q < 16; q++) sums[q] += q < live ? rows[q * hidden + d] * w : 0.0f;
        }
#pragma unroll
        for (int q = 0; q < 16; q++)
            if (q < live) y[(p0 + q) * dim + c] = sums[q];
    }
}
