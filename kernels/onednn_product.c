/* kernels/onednn_product.c - matrix products by oneDNN. */
#include <cblas.h>

#include "common/status.h"
#include "kernels/onednn.h"
#include "kernels/onednn_plan.h"

/* Of many columns of a transposed b with few terms, version 2.6 makes a product that is half as fast as those of so
 * many columns are: measured for 32 to 128 rows, 1500 to 2450 columns, 300 to 1000 terms. */
#define FEW_COLUMNS ((size_t)1024)
#define FEW_TERMS   ((size_t)1024)

static size_t columns_at_once(size_t n, size_t k, sg_cpu_operand b)
{
    return b.transpose && k < FEW_TERMS && n > FEW_COLUMNS ? FEW_COLUMNS : n;
}

void sg_onednn_multiply(size_t m, size_t n, size_t k, sg_cpu_operand a, sg_cpu_operand b, bool accumulate, float *c,
                        size_t c_stride)
{
    if (m == 0 || n == 0 || k == 0 || !sg_onednn_has_our_threads()) {
        sg_cpu_multiply(m, n, k, a, b, accumulate, c, c_stride);
        return;
    }
    omp_set_num_threads(openblas_get_num_threads());
    const size_t step = columns_at_once(n, k, b);
    for (size_t first = 0; first < n; first += step) {
        const size_t n_columns = n - first < step ? n - first : step;
        const dnnl_status_t status = dnnl_sgemm(
            a.transpose ? 'T' : 'N', b.transpose ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n_columns, (dnnl_dim_t)k, 1,
            a.first, (dnnl_dim_t)a.stride, b.first + (b.transpose ? first * b.stride : first), (dnnl_dim_t)b.stride,
            accumulate ? 1 : 0, c + first, (dnnl_dim_t)c_stride);
        SG_ASSERT(status == dnnl_success); /* the sizes fit the arrays: only memory can be short, as with OpenBLAS */
    }
}
