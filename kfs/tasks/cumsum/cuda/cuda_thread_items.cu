// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: cumsum_items grid=(R,) block=(256,) args=(x, y, C)
#define ITEMS 8  // variants: 4, 16

__device__ int padded(int i) {
    return i + i / 32;
}

extern "C" __global__ void __launch_bounds__(256) cumsum_items(const float* x, float* y, int cols) {
    __shared__ float tile[256 * ITEMS + 8 * ITEMS];
    __shared__ float sums[8];
    const float* in = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    int lane = t % 32;
    int warp = t / 32;
    float carry = 0.0f;
    for (int c = 0; c < cols; c += 256 * ITEMS) {
        for (int i = t; i < 256 * ITEMS; i += 256) tile[padded(i)] = c + i < cols ? in[c + i] : 0.0f;
        __syncthreads();
        float v[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            v[k] = tile[padded(t * ITEMS + k)];
            if (k > 0) v[k] += v[k - 1];
        }
        float s = v[ITEMS - 1];
        for (int d = 1; d < 32; d *= 2) {
            float earlier = __shfl_up_sync(0xffffffffu, s, d);
            if (lane >= d) s += earlier;
        }
        if (lane == 31) sums[warp] = s;
        float offset = __shfl_up_sync(0xffffffffu, s, 1);
        if (lane == 0) offset = 0.0f;
        __syncthreads();
        float before = 0.0f;
        float total = 0.0f;
        for (int w = 0; w < 8; w++) {
            if (w == warp) before = total;
            total += sums[w];
        }
        offset += carry + before;
        carry += total;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) tile[padded(t * ITEMS + k)] = offset + v[k];
        __syncthreads();
        for (int i = t; i < 256 * ITEMS; i += 256) {
            if (c + i < cols) out[c + i] = tile[padded(i)];
        }
        __syncthreads();
    }
}
