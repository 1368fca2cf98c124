/* kernels/onednn_product.c - matrix products by oneDNN. */
#include <cblas.h>

#include "common/status.h"
#include "kernels/onednn.h"
#include "kernels/onednn_plan.h"

void sg_onednn_multiply(size_t m, size_t n, size_t k, sg_cpu_operand a, sg_cpu_operand b, bool accumulate, float *c,
                        size_t c_stride)
{
    if (m == 0 || n == 0 || k == 0 || !sg_onednn_has_our_threads()) {
        sg_cpu_multiply(m, n, k, a, b, accumulate, c, c_stride);
        return;
    }
    omp_set_num_threads(openblas_get_num_threads());
    const dnnl_status_t status = dnnl_sgemm(a.transpose ? 'T' : 'N', b.transpose ? 'T' : 'N', (dnnl_dim_t)m,
                                            (dnnl_dim_t)n, (dnnl_dim_t)k, 1, a.first, (dnnl_dim_t)a.stride, b.first,
                                            (dnnl_dim_t)b.stride, accumulate ? 1 : 0, c, (dnnl_dim_t)c_stride);
    SG_ASSERT(status == dnnl_success); /* the sizes fit the arrays: only memory can be short, as with OpenBLAS */
}
