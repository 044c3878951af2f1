// nvcc: -lcublas
// Matrix products of small integers (exact in every order of summation) with cuBLAS: handles on two streams, inputs
// and results allocated and freed around every product, handles made and destroyed, and a user workspace.
#include <cublas_v2.h>

#include <random>

#include "check.h"

#define CHECK_BLAS(call)                                               \
    do {                                                               \
        cublasStatus_t status_ = (call);                               \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                        \
            printf("FAIL line %d: %s: %d\n", __LINE__, #call, status_); \
            return 1;                                                  \
        }                                                              \
    } while (0)

template <class T>
std::vector<T> product(const std::vector<T> &a, const std::vector<T> &b, int m, int n, int k) {  // column-major
    std::vector<T> c((size_t)m * n, T(0));
    for (int j = 0; j < n; j++)
        for (int l = 0; l < k; l++)
            for (int i = 0; i < m; i++) c[i + (size_t)j * m] += a[i + (size_t)l * m] * b[l + (size_t)j * k];
    return c;
}
cublasStatus_t gemm(cublasHandle_t h, int m, int n, int k, const float *a, const float *b, float *c) {
    float one = 1, zero = 0;
    return cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, m, b, k, &zero, c, m);
}
cublasStatus_t gemm(cublasHandle_t h, int m, int n, int k, const double *a, const double *b, double *c) {
    double one = 1, zero = 0;
    return cublasDgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, m, b, k, &zero, c, m);
}

template <class T>
int rounds(const char *name) {
    std::mt19937 random(3);
    int wrong = 0;
    const int total = 24;
    cublasHandle_t handles[2];
    cudaStream_t streams[2] = {new_stream(), new_stream()};
    void *workspace = device_alloc(8 << 20);
    for (int i = 0; i < 2; i++) {
        CHECK_BLAS(cublasCreate(&handles[i]));
        CHECK_BLAS(cublasSetStream(handles[i], streams[i]));
    }
    CHECK_BLAS(cublasSetWorkspace(handles[1], workspace, 8 << 20));
    for (int round = 0; round < total; round++) {
        int m = 16 + random() % 200, n = 16 + random() % 200, k = 16 + random() % 200, which = round % 2;
        std::vector<T> a((size_t)m * k), b((size_t)k * n), c((size_t)m * n);
        for (auto &x : a) x = T((int)(random() % 9) - 4);
        for (auto &x : b) x = T((int)(random() % 9) - 4);
        T *da = device_alloc<T>(a.size() * sizeof(T)), *db = device_alloc<T>(b.size() * sizeof(T)), *dc = device_alloc<T>(c.size() * sizeof(T));
        CHECK(cudaMemcpyAsync(da, a.data(), a.size() * sizeof(T), cudaMemcpyHostToDevice, streams[which]));
        CHECK(cudaMemcpyAsync(db, b.data(), b.size() * sizeof(T), cudaMemcpyHostToDevice, streams[which]));
        CHECK_BLAS(gemm(handles[which], m, n, k, da, db, dc));
        CHECK(cudaFree(da));
        CHECK(cudaFree(db));
        CHECK(cudaMemcpyAsync(c.data(), dc, c.size() * sizeof(T), cudaMemcpyDeviceToHost, streams[which]));
        CHECK(cudaStreamSynchronize(streams[which]));
        CHECK(cudaFree(dc));
        wrong += c != product(a, b, m, n, k);
        if (round % 8 == 7) {  // handles own device memory too
            CHECK_BLAS(cublasDestroy(handles[0]));
            CHECK_BLAS(cublasCreate(&handles[0]));
            CHECK_BLAS(cublasSetStream(handles[0], streams[0]));
        }
    }
    for (auto handle : handles) CHECK_BLAS(cublasDestroy(handle));
    CHECK(cudaFree(workspace));
    printf("%s: %d of %d products wrong %s\n", name, wrong, total, wrong ? "FAIL" : "ok");
    return wrong != 0;
}

int main() {
    watchdog("cublas_gemm", 100);
    load_kernels();
    return rounds<float>("sgemm") | rounds<double>("dgemm");
}
