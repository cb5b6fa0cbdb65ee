// inputs: x[R, C]
// outputs: y[R, C] float32
// launch: cumsum_transposed grid=(cdiv(R, 32),) block=(32,) args=(x, y, R, C)
extern "C" __global__ void cumsum_transposed(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32][33];
    int lane = threadIdx.x;
    int first = blockIdx.x * 32;
    int height = min(32, rows - first);
    double total = 0.0;
    for (int c = 0; c < cols; c += 32) {
        bool inside = c + lane < cols;
        for (int r = 0; r < height; r++) tile[r][lane] = inside ? x[(long long)(first + r) * cols + c + lane] : 0.0f;
        __syncwarp();
        if (lane < height) {
            for (int k = 0; k < 32; k++) {
                total += tile[lane][k];
                tile[lane][k] = (float)total;
            }
        }
        __syncwarp();
        for (int r = 0; r < height; r++) {
            if (inside) y[(long long)(first + r) * cols + c + lane] = tile[r][lane];
        }
        __syncwarp();
    }
}
