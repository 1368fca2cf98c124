/* tests/kernels/test_kernel.c - every table against the plain loops in double precision, over sizes 0, 1, odd, large.
 *
 * A new kernel: add a check_... function and a test for it. A new backend: arrays.h.
 * Bounds: elementwise kernels are exact; a sum of n products of numbers up to 1 is within 2e-7 * (1 + n); probabilities
 * are within 1e-6, losses within 1e-6 * (1 + loss). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/kernels/arrays.h"

TestSuite(kernel, .timeout = 240);

static void gemm_of(const sg_kernel *kernel, int flags, size_t m, size_t n, size_t k)
{
    bool transpose_a = flags & 1;
    bool transpose_b = flags & 2;
    bool accumulate = flags & 4;
    sg_array a = sg_array_make("a", m * k, 1);
    sg_array b = sg_array_make("b", k * n, 1);
    sg_array c = sg_array_make("c", m * n, 1);
    kernel->gemm(transpose_a, transpose_b, m, n, k, a.f, b.f, accumulate, c.f);
    sg_kernel_ref_double()->gemm(transpose_a, transpose_b, m, n, k, a.d, b.d, accumulate, c.d);
    sg_array_assert_near(kernel, "gemm", &c, 2e-7 * (double)(1 + k));
    sg_array_free(&a);
    sg_array_free(&b);
    sg_array_free(&c);
}

static void check_gemm(const sg_kernel *kernel)
{
    static const size_t sizes[] = {0, 1, 7, 33, 130};
    enum { n_sizes = SG_ARRAY_LEN(sizes) };
    for (size_t i = 0; i < n_sizes * n_sizes * n_sizes; i++)
        for (int flags = 0; flags < 8; flags++)
            gemm_of(kernel, flags, sizes[i % n_sizes], sizes[i / n_sizes % n_sizes], sizes[i / n_sizes / n_sizes]);
}

/* Rows [first, first + n_rows) are those of the whole product, and no other is written. */
static void rows_of(const sg_kernel *kernel, int flags, size_t first, size_t n_rows, double bound)
{
    enum { m = 3 * SG_KERNEL_BLOCK_ROWS + 17, n = 70, k = 33 };
    sg_array a = sg_array_make("a", (size_t)m * k, 1);
    sg_array b = sg_array_make("b", (size_t)k * n, 1);
    sg_array c = sg_array_make("c", (size_t)m * n, 1), whole = sg_array_make("c", (size_t)m * n, 1);
    kernel->gemm(flags & 1, flags & 2, m, n, k, a.f, b.f, flags & 4, whole.f);
    kernel->gemm_rows(flags & 1, flags & 2, m, n, k, first, n_rows, a.f, b.f, flags & 4, c.f);
    for (size_t i = 0; i < (size_t)m * n; i++) {
        const bool of_it = i / n >= first && i / n < first + n_rows;
        const double want = of_it ? (double)whole.f[i] : c.d[i];
        cr_assert(fabs((double)c.f[i] - want) <= (of_it ? bound : 0), "%s: element %zu, row %zu, is %.9g, wanted %.9g",
                  kernel->name, i, i / n, (double)c.f[i], want);
    }
    sg_array_free(&a);
    sg_array_free(&b);
    sg_array_free(&c);
    sg_array_free(&whole);
}

/* Terms [0, cut) and the others one after the other are the whole product. */
static void terms_of(const sg_kernel *kernel, int flags, size_t cut)
{
    enum { m = 19, n = 70, k = 133 };
    sg_array a = sg_array_make("a", (size_t)m * k, 1);
    sg_array b = sg_array_make("b", (size_t)k * n, 1);
    sg_array c = sg_array_make("c", (size_t)m * n, 1);
    kernel->gemm_terms(flags & 1, flags & 2, m, n, k, 0, cut, a.f, b.f, flags & 4, c.f);
    kernel->gemm_terms(flags & 1, flags & 2, m, n, k, cut, k - cut, a.f, b.f, true, c.f);
    sg_kernel_ref_double()->gemm(flags & 1, flags & 2, m, n, k, a.d, b.d, flags & 4, c.d);
    sg_array_assert_near(kernel, "gemm_terms", &c, 2e-7 * (1 + k));
    sg_array_free(&a);
    sg_array_free(&b);
    sg_array_free(&c);
}

static void check_gemm_terms(const sg_kernel *kernel)
{
    static const size_t cuts[] = {0, 1, 64, 77, 133};
    for (size_t i = 0; i < SG_ARRAY_LEN(cuts); i++)
        for (int flags = 0; flags < 8; flags++)
            terms_of(kernel, flags, cuts[i]);
}

Test(kernel, sums_in_two_parts_are_those_of_the_whole_product)
{
    sg_kernel_cpu_set_threads(1);
    sg_for_each_table(check_gemm_terms);
}

static void check_gemm_rows(const sg_kernel *kernel)
{
    for (int flags = 0; flags < 8; flags++) {
        rows_of(kernel, flags, 5, 7, 1e-5);
        rows_of(kernel, flags, 5, 0, 0);
    }
    /* As a weight's gradient is made: op(a) is transposed. */
    const bool has_bits_of_shape = strcmp(kernel->name, "cuda") == 0 || strncmp(kernel->name, "onednn", 6) == 0;
    const double bound = has_bits_of_shape ? 1e-5 : 0;
    for (size_t block = 0; block < 4; block++)
        for (int flags = 1; flags < 8; flags += 4)
            rows_of(kernel, flags, block * SG_KERNEL_BLOCK_ROWS, block < 3 ? SG_KERNEL_BLOCK_ROWS : 17, bound);
}

Test(kernel, blocks_of_rows_have_the_bits_of_the_whole_product)
{
    sg_kernel_cpu_set_threads(1);
    sg_for_each_table(check_gemm_rows);
}

/* Two threads divide a product by its sizes alone, and by no chance of which of them is first. */
static void check_threads(const sg_kernel *kernel)
{
    static const size_t sizes[][3] = {{1, 50, 500},   {128, 512, 784}, {784, 512, 128},
                                      {50, 500, 392}, {20, 25, 1456},  {6, 1100, 50}};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        const size_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        sg_array a = sg_array_make("a", m * k, 1), b = sg_array_make("b", k * n, 1);
        sg_array c = sg_array_make("c", m * n, 1), again = sg_array_make("c", m * n, 1);
        kernel->gemm(false, true, m, n, k, a.f, b.f, false, c.f);
        for (size_t repeat = 0; repeat < 5; repeat++) {
            kernel->gemm(false, true, m, n, k, a.f, b.f, false, again.f);
            cr_assert_arr_eq(again.f, c.f, m * n * sizeof(float), "%s: %zu x %zu x %zu", kernel->name, m, n, k);
        }
        sg_kernel_ref_double()->gemm(false, true, m, n, k, a.d, b.d, false, c.d);
        sg_array_assert_near(kernel, "gemm of two threads", &c, 2e-7 * (double)(1 + k));
        sg_array_free(&a), sg_array_free(&b), sg_array_free(&c), sg_array_free(&again);
    }
}

Test(kernel, products_of_two_threads_have_the_same_bits_every_time)
{
    sg_kernel_cpu_set_threads(2);
    check_threads(sg_kernel_cpu());
    if (sg_kernel_onednn())
        check_threads(sg_kernel_onednn());
    else
        cr_log_warn("SKIP: this was built without oneDNN");
}

Test(kernel, matrix_products_agree_with_the_plain_loops)
{
    sg_kernel_cpu_set_threads(1);
    sg_for_each_table(check_gemm);
}

Test(kernel, a_small_matrix_product_is_the_one_computed_by_hand)
{
    /* [1 2 3; 4 5 6] * [1 0; 0 1; 2 -1] = [7 -1; 16 -1] */
    double a[] = {1, 2, 3, 4, 5, 6};
    double a_transposed[] = {1, 4, 2, 5, 3, 6};
    double b[] = {1, 0, 0, 1, 2, -1};
    double b_transposed[] = {1, 0, 2, 0, 1, -1};
    static const double want[] = {7, -1, 16, -1};
    for (int flags = 0; flags < 4; flags++) {
        double c[4] = {9, 9, 9, 9};
        sg_kernel_ref_double()->gemm(flags & 1, flags & 2, 2, 2, 3, flags & 1 ? a_transposed : a,
                                     flags & 2 ? b_transposed : b, false, c);
        cr_assert_arr_eq(c, want, sizeof want);
    }
}

static const struct {
    size_t rows, cols;
} shapes[] = {{0, 0}, {0, 5}, {1, 1}, {7, 1}, {1, 7}, {33, 17}, {129, 512}, {1000, 10}};

static void check_bias(const sg_kernel *kernel)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++) {
        size_t rows = shapes[i].rows;
        size_t cols = shapes[i].cols;
        sg_array bias = sg_array_make("bias", cols, 1);
        sg_array y = sg_array_make("y", rows * cols, 1);
        sg_array relu = sg_array_make("y", rows * cols, 1);
        kernel->bias_add(rows, cols, bias.f, y.f);
        sg_kernel_ref_double()->bias_add(rows, cols, bias.d, y.d);
        sg_array_assert_near(kernel, "bias_add", &y, 2e-7);
        kernel->bias_add_relu(rows, cols, bias.f, relu.f);
        sg_kernel_ref_double()->bias_add_relu(rows, cols, bias.d, relu.d);
        sg_array_assert_near(kernel, "bias_add_relu", &relu, 2e-7);
        sg_array_free(&bias);
        sg_array_free(&y);
        sg_array_free(&relu);
    }
}

Test(kernel, biases_agree_with_the_plain_loops)
{
    sg_for_each_table(check_bias);
}

static void check_relu(const sg_kernel *kernel)
{
    static const size_t sizes[] = {0, 1, 7, 33, 100003};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        sg_array x = sg_array_make("x", sizes[i], 1);
        sg_array y = sg_array_make("y", sizes[i], 1);
        sg_array dx = sg_array_make("dx", sizes[i], 1);
        sg_array dy = sg_array_make("dy", sizes[i], 1);
        kernel->relu(sizes[i], x.f, y.f);
        sg_kernel_ref_double()->relu(sizes[i], x.d, y.d);
        sg_array_assert_near(kernel, "relu", &y, 0);
        kernel->relu_backward(sizes[i], y.f, dy.f, true, dx.f);
        sg_kernel_ref_double()->relu_backward(sizes[i], y.d, dy.d, true, dx.d);
        sg_array_assert_near(kernel, "relu_backward, accumulating", &dx, 2e-7);
        kernel->relu_backward(sizes[i], y.f, dy.f, false, dy.f);
        sg_kernel_ref_double()->relu_backward(sizes[i], y.d, dy.d, false, dy.d);
        sg_array_assert_near(kernel, "relu_backward in place", &dy, 0);
        sg_array_free(&x);
        sg_array_free(&y);
        sg_array_free(&dx);
        sg_array_free(&dy);
    }
    float nan = NAN;
    kernel->relu(1, &nan, &nan);
    cr_assert(isnan(nan), "relu of %s hides a NaN", kernel->name);
}

Test(kernel, relu_agrees_with_the_plain_loops)
{
    sg_for_each_table(check_relu);
}

static void column_sums_of(const sg_kernel *kernel, size_t rows, size_t cols, bool accumulate)
{
    sg_array y = sg_array_make("y", rows * cols, 1);
    sg_array dy = sg_array_make("dy", rows * cols, 1);
    sg_array sums = sg_array_make("sums", cols, 1);
    sg_array masked_sums = sg_array_make("sums", cols, 1);
    double bound = 2e-7 * (double)(1 + rows);
    kernel->column_sums(rows, cols, dy.f, accumulate, sums.f);
    sg_kernel_ref_double()->column_sums(rows, cols, dy.d, accumulate, sums.d);
    sg_array_assert_near(kernel, "column_sums", &sums, bound);
    kernel->relu_backward_column_sums(rows, cols, y.f, dy.f, accumulate, masked_sums.f);
    sg_kernel_ref_double()->relu_backward_column_sums(rows, cols, y.d, dy.d, accumulate, masked_sums.d);
    sg_array_assert_near(kernel, "relu_backward_column_sums", &masked_sums, bound);
    sg_array_assert_near(kernel, "relu_backward_column_sums, gradient", &dy, 0);
    sg_array_free(&y);
    sg_array_free(&dy);
    sg_array_free(&sums);
    sg_array_free(&masked_sums);
}

static void check_column_sums(const sg_kernel *kernel)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++) {
        column_sums_of(kernel, shapes[i].rows, shapes[i].cols, false);
        column_sums_of(kernel, shapes[i].rows, shapes[i].cols, true);
    }
}

Test(kernel, column_sums_agree_with_the_plain_loops)
{
    sg_for_each_table(check_column_sums);
}

static void near_each(const sg_kernel *kernel, const char *what, size_t n, const float *found, double wanted)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_float_eq((double)found[i], wanted, wanted * 2e-5, "%s: %s of many: %g, wanted %g", kernel->name, what,
                           (double)found[i], wanted);
}

/* All of one sign: what is rounded at each addition does not cancel out. */
static void check_long_sums(const sg_kernel *kernel)
{
    enum { n = 1 << 18, cols = 3 };
    const float each = 0.1F;
    float *x = sg_xcalloc((size_t)n * cols, sizeof(float)), sums[2 * cols], mean[1], variance[1];
    for (size_t i = 0; i < (size_t)n * cols; i++)
        x[i] = each;
    const double sum = (double)each * n;
    kernel->column_sums(n, cols, x, false, sums);
    near_each(kernel, "column_sums", cols, sums, sum);
    kernel->relu_backward_column_sums(n, cols, x, x, false, sums);
    near_each(kernel, "relu_backward_column_sums", cols, sums, sum);
    kernel->conv->plane_sums(1, cols, n, x, false, sums);
    near_each(kernel, "plane_sums", cols, sums, sum);
    kernel->pool->row_means(cols, n, x, sums);
    near_each(kernel, "row_means", cols, sums, (double)each);
    const sg_norm_shape shape = {.images = 1, .channels = 1, .plane = n};
    kernel->norm->batch_statistics(&shape, x, mean, variance);
    near_each(kernel, "statistics", 1, mean, (double)each);
    const float zero = 0, one = 1;
    kernel->norm->batch_sums(&shape, x, &zero, &one, x, sums);
    near_each(kernel, "norm sums", 1, sums, sum);
    near_each(kernel, "norm sums of products", 1, sums + 1, sum * (double)each);
    free(x);
}

Test(kernel, sums_of_very_many_numbers_are_as_good_as_of_few)
{
    sg_for_each_table(check_long_sums);
}

static void cross_entropy_of(const sg_kernel *kernel, size_t rows, size_t cols, float limit, bool accumulate)
{
    sg_array logits = sg_array_make("logits", rows * cols, limit);
    sg_array p = sg_array_make("p", rows * cols, 1);
    sg_array d = sg_array_make("d", rows * cols, 1);
    sg_array loss = sg_array_make("loss", 1, 1);
    sg_array dloss = sg_array_make("dloss", 1, 2);
    uint32_t *labels = sg_xcalloc(rows + 1, sizeof *labels);
    for (size_t r = 0; r < rows; r++)
        labels[r] = (uint32_t)(r * 7 % cols);
    const sg_kernel *truth = sg_kernel_ref_double();
    const double smoothing = accumulate ? 0.1 : 0;
    kernel->softmax_cross_entropy(rows, cols, logits.f, labels, smoothing, p.f, loss.f);
    truth->softmax_cross_entropy(rows, cols, logits.d, labels, smoothing, p.d, loss.d);
    sg_array_assert_near(kernel, "softmax", &p, 1e-6);
    sg_array_assert_near(kernel, "cross entropy", &loss, 1e-6 * (1 + fabs(loss.d[0])));
    kernel->softmax_cross_entropy_backward(rows, cols, p.f, labels, smoothing, dloss.f, accumulate, d.f);
    truth->softmax_cross_entropy_backward(rows, cols, p.d, labels, smoothing, dloss.d, accumulate, d.d);
    sg_array_assert_near(kernel, "softmax_cross_entropy_backward", &d, 1e-6);
    cr_assert(kernel->count_correct(rows, cols, logits.f, labels) == truth->count_correct(rows, cols, logits.d, labels),
              "count_correct of %s", kernel->name);
    free(labels);
    sg_array *const all[] = {&logits, &p, &d, &loss, &dloss};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        sg_array_free(all[i]);
}

static void check_cross_entropy(const sg_kernel *kernel)
{
    static const float limits[] = {0.1F, 5, 100, 1e4F, 1e30F};
    for (size_t i = 1; i < SG_ARRAY_LEN(shapes); i++)
        for (size_t l = 0; l < SG_ARRAY_LEN(limits); l++)
            cross_entropy_of(kernel, shapes[i].rows, shapes[i].cols, limits[l], l % 2);
}

Test(kernel, softmax_and_cross_entropy_agree_with_the_plain_loops_for_logits_of_any_size)
{
    sg_for_each_table(check_cross_entropy);
}

static void check_known_loss(const sg_kernel *kernel)
{
    float logits[] = {0, 0, 0, 0, 1000, 0, -1000, 0};
    uint32_t labels[] = {2, 0};
    float p[8];
    float loss;
    kernel->softmax_cross_entropy(2, 4, logits, labels, 0, p, &loss);
    cr_assert_float_eq(loss, log(4) / 2, 1e-6, "of %s: %.9g", kernel->name, (double)loss);
    static const float want[] = {0.25F, 0.25F, 0.25F, 0.25F, 1, 0, 0, 0};
    for (size_t i = 0; i < SG_ARRAY_LEN(want); i++)
        cr_assert_float_eq(p[i], want[i], 1e-6, "of %s: %zu", kernel->name, i);
    kernel->softmax_cross_entropy(2, 4, logits, (uint32_t[]){0, 2}, 0, p, &loss);
    cr_assert_float_eq(loss, (log(4) + 2000) / 2, 1e-3, "a label without probability: %.9g", (double)loss);
    float nan[] = {NAN, 0};
    kernel->softmax_cross_entropy(1, 2, nan, labels + 1, 0, p, &loss);
    cr_assert(isnan(loss), "cross entropy of %s hides a NaN", kernel->name);
}

Test(kernel, the_loss_of_logits_worked_out_by_hand)
{
    sg_for_each_table(check_known_loss);
}

Test(kernel, of_equal_logits_the_first_counts)
{
    float logits[] = {1, 1, 0, 0, 2, 2};
    cr_assert(sg_kernel_cpu()->count_correct(2, 3, logits, (uint32_t[]){0, 1}) == 2);
    cr_assert(sg_kernel_cpu()->count_correct(2, 3, logits, (uint32_t[]){1, 2}) == 0);
}

static void check_fill(const sg_kernel *kernel)
{
    float x[4] = {7, 7, 7, 7};
    kernel->fill(3, 0.25, x);
    cr_assert(x[0] == 0.25F && x[2] == 0.25F && x[3] == 7);
    cr_assert(kernel->get(x, 1) == 0.25);
    kernel->fill(0, 1, NULL);
}

Test(kernel, fill_fills_as_many_as_it_is_told)
{
    sg_for_each_table(check_fill);
    double x[2] = {1, 1};
    sg_kernel_ref_double()->fill(1, 0.1, x);
    cr_assert(x[0] == 0.1 && x[1] == 1 && sg_kernel_ref_double()->get(x, 0) == 0.1);
}

static void check_scaled(const sg_kernel *kernel)
{
    static const size_t sizes[] = {0, 1, 7, 16, 129};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            sg_array x = sg_array_make("x", sizes[i], 1), y = sg_array_make("y", sizes[i], 1);
            kernel->scaled(sizes[i], 0.1, x.f, accumulate, y.f);
            sg_kernel_ref_double()->scaled(sizes[i], 0.1, x.d, accumulate, y.d);
            sg_array_assert_near(kernel, "scaled", &y, 2e-7);
            sg_array_free(&x);
            sg_array_free(&y);
        }
    }
}

Test(kernel, scaling_agrees_with_the_plain_loops)
{
    sg_for_each_table(check_scaled);
}
