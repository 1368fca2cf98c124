/* kernels/cuda_launch.h - the ways in which everything on the device is computed. Only cuda*.cu include it.
 *
 *     sg_cuda_each(n, [=] __device__(size_t i) { y[i] = x[i] + 1; });
 *
 * calls the function for each i below n, at once and in any order: so it may write what belongs to i alone. A sum has
 * SG_CUDA_BLOCK parts, part t of the terms t, t + SG_CUDA_BLOCK...; these are added pairwise: the order is that of the
 * sizes alone, so a sum has the same bits in each run. Nothing is added by atomic operations.
 *
 * The same source is compiled by a C++ compiler for tests, where tests/support/cuda stands in for CUDA: SG_CUDA_THREADS
 * is then a loop, and work is begun as late as CUDA may begin it. */
#ifndef SG_KERNELS_CUDA_LAUNCH_H
#define SG_KERNELS_CUDA_LAUNCH_H

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>

#include "kernels/cuda.h"

typedef float real;

#define SG_CUDA_BLOCK 256u

#ifdef __CUDACC__
/* What follows is done by each thread t of a block; it ends before what comes after SG_CUDA_BARRIER begins. */
#define SG_CUDA_THREADS(t) if (const unsigned t = threadIdx.x; true)
#define SG_CUDA_BARRIER    __syncthreads()
#define SG_CUDA_LAUNCH(kernel, n_blocks, ...)                                                                          \
    kernel<<<(unsigned)(n_blocks), SG_CUDA_BLOCK, 0, sg_cuda_begin()>>>(__VA_ARGS__)
#endif

/* --- cuda_memory.cu ----------------------------------------------------------------------------------------------- */

/* The stream in which everything is computed; chooses the device for this thread. */
cudaStream_t sg_cuda_begin(void);
/* The handle for products in that stream. */
cublasHandle_t sg_cuda_blas(void);
/* Keeps the first failure. */
void sg_cuda_note(cudaError_t error);
void sg_cuda_note_blas(cublasStatus_t status);
/* Copies n_bytes of the device to the host when all that was begun is done; all zeros after a failure. */
void sg_cuda_fetch(void *to_host, const void *from, size_t n_bytes);
/* Opens the device; false with the reason in why. */
bool sg_cuda_start(uint32_t index, char *why, size_t why_bytes);
/* Memory for one number that the device tells the host; held until sg_cuda_give_number. */
uint64_t *sg_cuda_take_number(void);
void sg_cuda_give_number(void);

extern const sg_kernel_device sg_cuda_device;
extern const sg_kernel_conv sg_cuda_conv;
extern const sg_kernel_pool sg_cuda_pool;
extern const sg_kernel_elementwise sg_cuda_elementwise;
extern const sg_kernel_norm sg_cuda_norm;
extern const sg_kernel_move sg_cuda_move;

/* The part of an operand where a product begins, and how far its rows lie apart. */
typedef struct sg_cuda_operand {
    bool transpose;
    const void *first;
    size_t stride;
} sg_cuda_operand;

/* c[m,n] = op(a) * op(b) (+ c); the rows of c lie c_stride elements apart. */
void sg_cuda_multiply(size_t m, size_t n, size_t k, sg_cuda_operand a, sg_cuda_operand b, bool accumulate, void *c,
                      size_t c_stride);

/* --- what sums are made of ---------------------------------------------------------------------------------------- */

struct sg_cuda_sum {
    double value;
    static __host__ __device__ sg_cuda_sum none()
    {
        return {0};
    }
    __host__ __device__ void add(const sg_cuda_sum &other)
    {
        value += other.value;
    }
};

struct sg_cuda_sums { /* two at once */
    double first, second;
    static __host__ __device__ sg_cuda_sums none()
    {
        return {0, 0};
    }
    __host__ __device__ void add(const sg_cuda_sums &other)
    {
        first += other.first;
        second += other.second;
    }
};

struct sg_cuda_largest {
    real value;
    static __host__ __device__ sg_cuda_largest none()
    {
        return {-INFINITY};
    }
    __host__ __device__ void add(const sg_cuda_largest &other)
    {
        value = other.value > value ? other.value : value;
    }
};

/* --- kernels ------------------------------------------------------------------------------------------------------ */

template <class Each> __global__ void sg_cuda_each_kernel(size_t n, Each each)
{
    SG_CUDA_THREADS(t)
    {
        for (size_t i = blockIdx.x * (size_t)SG_CUDA_BLOCK + t; i < n; i += gridDim.x * (size_t)SG_CUDA_BLOCK)
            each(i);
    }
}

/* The sum of term(0) to term(n - 1), for all threads of a block. */
template <class Sum, class Term> __device__ Sum sg_cuda_add_up(size_t n, Term term)
{
    __shared__ Sum parts[SG_CUDA_BLOCK];
    SG_CUDA_THREADS(t)
    {
        Sum part = Sum::none();
        for (size_t i = t; i < n; i += SG_CUDA_BLOCK)
            part.add(term(i));
        parts[t] = part;
    }
    SG_CUDA_BARRIER;
    for (unsigned half = SG_CUDA_BLOCK / 2; half > 0; half /= 2) {
        SG_CUDA_THREADS(t)
        {
            if (t < half)
                parts[t].add(parts[t + half]);
        }
        SG_CUDA_BARRIER;
    }
    const Sum total = parts[0];
    SG_CUDA_BARRIER; /* before another sum takes the parts */
    return total;
}

template <class First, class Second, class FirstTerm, class SecondTerm, class Then>
__global__ void sg_cuda_rows_kernel(size_t cols, FirstTerm first_term, SecondTerm second_term, Then then)
{
    const size_t row = blockIdx.x;
    const First first = sg_cuda_add_up<First>(cols, [&](size_t col) { return first_term(row, col); });
    const Second second = sg_cuda_add_up<Second>(cols, [&](size_t col) { return second_term(row, col, first); });
    SG_CUDA_THREADS(t)
    {
        for (size_t col = t; col < cols || col == 0; col += SG_CUDA_BLOCK)
            then(row, col, first, second);
    }
}

template <class Sum, class Term, class Then> __global__ void sg_cuda_sum_kernel(size_t n_terms, Term term, Then then)
{
    const size_t index = blockIdx.x;
    const Sum sum = sg_cuda_add_up<Sum>(n_terms, [&](size_t i) { return term(index, i); });
    SG_CUDA_THREADS(t)
    {
        if (t == 0)
            then(index, sum);
    }
}

/* each(i) for i < n */
template <class Each> void sg_cuda_each(size_t n, Each each)
{
    const size_t n_blocks = (n + SG_CUDA_BLOCK - 1) / SG_CUDA_BLOCK, most = 65535;
    if (n == 0)
        return;
    SG_CUDA_LAUNCH(sg_cuda_each_kernel, n_blocks < most ? n_blocks : most, n, each);
    sg_cuda_note(cudaGetLastError());
}

/* then(index, sum of term(index, i) over i < n_terms) for each index < n_sums */
template <class Sum, class Term, class Then> void sg_cuda_each_sum(size_t n_sums, size_t n_terms, Term term, Then then)
{
    if (n_sums == 0)
        return;
    SG_CUDA_LAUNCH((sg_cuda_sum_kernel<Sum, Term, Then>), n_sums, n_terms, term, then);
    sg_cuda_note(cudaGetLastError());
}

/* For each row: first = sum of first_term(row, col), second = sum of second_term(row, col, first), both over col <
 * cols; then(row, col, first, second) for each col, for column 0 also where there are none. */
template <class First, class Second, class FirstTerm, class SecondTerm, class Then>
void sg_cuda_each_row(size_t rows, size_t cols, FirstTerm first_term, SecondTerm second_term, Then then)
{
    if (rows == 0)
        return;
    SG_CUDA_LAUNCH((sg_cuda_rows_kernel<First, Second, FirstTerm, SecondTerm, Then>), rows, cols, first_term,
                   second_term, then);
    sg_cuda_note(cudaGetLastError());
}

#endif
