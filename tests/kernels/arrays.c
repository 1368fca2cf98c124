/* tests/kernels/arrays.c - see arrays.h. */
#include "tests/kernels/arrays.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "kernels/cuda_load.h"
#include "tests/kernels/staged.h"
#include "worker/nn/initializer.h"

#define CANARY 12345.0F

sg_array sg_array_make(const char *name, size_t n_elems, float limit)
{
    sg_array a = {
        .n_elems = n_elems, .f = sg_xcalloc(n_elems + 1, sizeof(float)), .d = sg_xcalloc(n_elems + 1, sizeof(double))};
    sg_initializer_uniform(3, name, limit, 0, n_elems, a.f);
    a.f[n_elems] = CANARY;
    for (size_t i = 0; i <= n_elems; i++)
        a.d[i] = (double)a.f[i];
    return a;
}

void sg_array_free(sg_array *a)
{
    free(a->f);
    free(a->d);
}

void sg_array_assert_near(const sg_kernel *kernel, const char *what, const sg_array *a, double bound)
{
    for (size_t i = 0; i < a->n_elems; i++)
        cr_assert(fabs((double)a->f[i] - a->d[i]) <= bound,
                  "%s of %s: element %zu of %zu is %.9g, wanted %.9g within %g", what, kernel->name, i, a->n_elems,
                  (double)a->f[i], a->d[i], bound);
    cr_assert(a->f[a->n_elems] == CANARY, "%s of %s wrote behind its output", what, kernel->name);
}

void sg_array_assert_sums(const sg_kernel *kernel, const char *what, const sg_array *a, size_t n_terms)
{
    double squares = 0;
    for (size_t i = 0; i < a->n_elems; i++)
        squares += a->d[i] * a->d[i];
    const double size = a->n_elems > 0 ? sqrt(squares / (double)a->n_elems) : 0;
    sg_array_assert_near(kernel, what, a, 4e-7 * (2 + sqrt((double)n_terms)) * size);
}

void sg_for_each_table(void (*check)(const sg_kernel *kernel))
{
    check(sg_kernel_ref_float());
    for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++) {
        if (sg_isa_has(isa))
            check(sg_kernel_cpu_as(isa));
        else
            cr_log_warn("SKIP: this machine lacks instruction set %d", (int)isa);
    }
    const sg_kernel *cuda = NULL;
    sg_error err;
    cr_assert(sg_kernel_cuda(0, &cuda, &err) == SG_OK, "%s", err.message);
    check(sg_staged(cuda));
    if (sg_kernel_onednn())
        check(sg_kernel_onednn());
    else
        cr_log_warn("SKIP: this was built without oneDNN");
}
