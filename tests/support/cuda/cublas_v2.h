/* tests/support/cuda/cublas_v2.h - stands in for cuBLAS; see cuda_runtime.h. */
#ifndef SG_TESTS_SUPPORT_CUDA_CUBLAS_H
#define SG_TESTS_SUPPORT_CUDA_CUBLAS_H

#include "cuda_runtime.h"

typedef enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS,
    CUBLAS_STATUS_ALLOC_FAILED,
    CUBLAS_STATUS_INVALID_VALUE
} cublasStatus_t;
typedef enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum cublasMath_t { CUBLAS_PEDANTIC_MATH } cublasMath_t;
typedef struct standin_blas {
    cudaStream_t stream;
} * cublasHandle_t;

inline const char *cublasGetStatusString(cublasStatus_t status)
{
    static const char *const texts[] = {"success", "the resource allocation failed", "an argument is wrong"};
    return texts[status];
}
inline cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = new standin_blas{nullptr};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

/* c[m,n] = alpha * op(a) * op(b) + beta * c, in columns: element (i, j) of a matrix is at i + j * its stride. */
inline cublasStatus_t cublasSgemm_64(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m,
                                     int64_t n, int64_t k, const float *alpha, const float *a, int64_t lda,
                                     const float *b, int64_t ldb, const float *beta, float *c, int64_t ldc)
{
    if (m < 0 || n < 0 || k < 0 || lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) ||
        ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (standin_count_product() > standin_setting("SG_STANDIN_PRODUCTS", UINT64_MAX))
        return CUBLAS_STATUS_ALLOC_FAILED;
    standin_begin(handle->stream, [=, alpha = *alpha, beta = *beta] {
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < m; i++) {
                float sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += a[op_a == CUBLAS_OP_N ? i + l * lda : l + i * lda] *
                           b[op_b == CUBLAS_OP_N ? l + j * ldb : j + l * ldb];
                c[i + j * ldc] = alpha * sum + (beta != 0 ? beta * c[i + j * ldc] : 0);
            }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

#endif
