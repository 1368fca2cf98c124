#include "worker/cli/bench/pass.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(bench_pass, .timeout = 20);

Test(bench_pass, gradients_lie_scattered_and_every_element_is_updated)
{
    enum { BYTES = 1 << 20, SLICE = 100 * 1024 }; /* slices that do not divide the array */
    sg_bench_pass pass;
    cr_assert_eq(sg_bench_pass_init(&pass, BYTES, SLICE, NULL), SG_OK);
    size_t n_bytes = 0;
    for (size_t i = 0; i < pass.n_spans; i++)
        n_bytes += pass.spans[0][i].n_bytes;
    cr_assert_eq(n_bytes, BYTES);
    cr_assert(pass.n_spans > BYTES / 16384, "elements straddle spans");
    float gradient;
    memset(&gradient, 0x3c, sizeof(gradient));
    for (size_t n = 1; n <= SG_BENCH_PASS_MAX_PARTS; n *= 2) {
        cr_assert(sg_bench_pass_run(&pass, n) > 0);
        float wanted = fmaf(-0.01f, pass.velocity[0], pass.old_values[0]);
        for (size_t i = 0; i < pass.n_elems; i++) {
            cr_assert(pass.velocity[i] >= gradient * 0.999f, "element %zu has no velocity", i);
            cr_assert_eq(pass.new_values[i], wanted, "element %zu", i);
        }
    }
    sg_bench_pass_deinit(&pass);
}

Test(bench_pass, it_reads_values_velocity_and_contributions_and_writes_values_and_velocity)
{
    sg_bench_pass pass = {.n_elems = 1000};
    cr_assert_eq(sg_bench_pass_bytes(&pass, 1), 20000);
    cr_assert_eq(sg_bench_pass_bytes(&pass, 4), 32000);
}
