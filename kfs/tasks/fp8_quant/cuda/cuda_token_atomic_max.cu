// inputs: x[T, H]
// outputs: q[T, H] float32, scale[T, H // 128] float32
// let: GROUPS = H // 128
// launch: quantise_token grid=(T,) block=(256,) shared=4*GROUPS args=(x, q, scale, H, GROUPS)
extern "C" __global__ void quantise_token(const float* x, float* q, float* scale, int hidden, int groups) {
    extern __shared__ unsigned int peaks[];
    const float* in = x + (long long)blockIdx.x * hidden;
    float* out = q + (long long)blockIdx.x * hidden;
    for (int g = threadIdx.x; g < groups; g += 256) peaks[g] = __float_as_uint(1e-10f);
    __syncthreads();
    for (int c = threadIdx.x; c < hidden; c += 256) atomicMax(&peaks[c / 128], __float_as_uint(fabsf(in[c])));
    __syncthreads();
    for (int c = threadIdx.x; c < hidden; c += 256) {
        float inverse = 448.0f / __uint_as_float(peaks[c / 128]);
        out[c] = fminf(fmaxf(in[c] * inverse, -448.0f), 448.0f);
    }
    for (int g = threadIdx.x; g < groups; g += 256) {
        scale[(long long)blockIdx.x * groups + g] = __uint_as_float(peaks[g]) / 448.0f;
    }
}
