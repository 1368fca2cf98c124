/* tests/nn/test_blocks.c - layers between which images change their order: what one of them leaves in blocks of
 * channels, another takes as it is, or in C order. Against the plain loops, which know no other order. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/fixture.h"
#include "worker/nn/blocks.h"
#include "worker/nn/initializer.h"

TestSuite(blocks, .timeout = 240);

enum {
    images = 3,
    side = 8,
    channels = 16,
    plane = side * side,
    n_x = images * plane,
    n_w = channels * channels * 9,
    max_result = images * 2 * channels * plane
};

/* Variables, and their gradients, of a small network on images of one channel. */
typedef struct network {
    float x[n_x], w0[channels * 9], w1[n_w], b[channels], gamma[channels], beta[channels], mean[channels],
        var[channels];
    float dx[n_x], dw0[channels * 9], dw1[n_w], db[channels], dgamma[channels], dbeta[channels];
} network;

static void fill(network *n)
{
    float *const all[] = {n->x, n->w0, n->w1, n->b, n->gamma, n->beta, n->mean};
    const size_t sizes[] = {n_x, channels * 9, n_w, channels, channels, channels, channels};
    static const float limits[] = {1, 0.3F, 0.1F, 0.1F, 1, 0.1F, 0.1F};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        sg_initializer_uniform(i + 1, "network", limits[i], 0, sizes[i], all[i]);
    for (size_t i = 0; i < channels; i++)
        n->var[i] = 0.5F;
}

/* What is done to [images, channels, 8, 8], where the table can in blocks; the result is of any shape. */
typedef sg_tensor *(*middle)(sg_tape *tape, network *n, sg_tensor *x);

static sg_tensor *convolve(sg_tape *tape, network *n, sg_tensor *x)
{
    sg_tensor *w = sg_tape_variable(tape, n->w1, n->dw1, 4, (uint64_t[]){channels, channels, 3, 3});
    sg_tensor *b = sg_tape_variable(tape, n->b, n->db, 1, (uint64_t[]){channels});
    return sg_conv2d_forward(tape, x, w, b, (sg_conv2d_options){.padding = 1});
}

static sg_tensor *norm(sg_tape *tape, network *n, sg_tensor *x, bool training)
{
    sg_tensor *of[] = {sg_tape_variable(tape, n->gamma, n->dgamma, 1, (uint64_t[]){channels}),
                       sg_tape_variable(tape, n->beta, n->dbeta, 1, (uint64_t[]){channels}),
                       sg_tape_variable(tape, n->mean, NULL, 1, (uint64_t[]){channels}),
                       sg_tape_variable(tape, n->var, NULL, 1, (uint64_t[]){channels})};
    return sg_batch_norm_forward(tape, x, of[0], of[1], of[2], of[3],
                                 (sg_batch_norm_options){.training = training, .relu = training});
}

static sg_tensor *nothing(sg_tape *tape, network *n, sg_tensor *x)
{
    (void)tape, (void)n;
    return x;
}

static sg_tensor *residual(sg_tape *tape, network *n, sg_tensor *x)
{
    sg_tensor *y = norm(tape, n, convolve(tape, n, x), true);
    return sg_global_average_pool_forward(tape, sg_add_relu_forward(tape, y, x));
}

static sg_tensor *evaluated(sg_tape *tape, network *n, sg_tensor *x)
{
    return sg_relu_forward(tape, norm(tape, n, convolve(tape, n, x), false));
}

static sg_tensor *pooled(sg_tape *tape, network *n, sg_tensor *x)
{
    x = sg_max_pool_forward(tape, x, (sg_pool_options){.window = 3, .stride = 2, .padding = 1});
    x = sg_average_pool_forward(tape, convolve(tape, n, x), (sg_pool_options){.window = 2});
    return sg_scale_forward(tape, sg_tanh_forward(tape, x), 2);
}

/* One in C order and one in blocks, twice. */
static sg_tensor *mixed(sg_tape *tape, network *n, sg_tensor *x)
{
    sg_tensor *left = sg_slice_forward(tape, x, 1, 0, channels / 2), *right = sg_slice_forward(tape, x, 1, 3, 8);
    sg_tensor *joined = sg_concat_forward(tape, (sg_tensor *[]){left, right}, 2, 1);
    sg_tensor *both = sg_add_forward(tape, joined, convolve(tape, n, x));
    return sg_concat_forward(tape, (sg_tensor *[]){sg_multiply_forward(tape, x, joined), both}, 2, 1);
}

static sg_tensor *in_order(sg_tape *tape, network *n, sg_tensor *x)
{
    sg_tensor *y = sg_dropout_forward(tape, sg_stop_gradient_forward(tape, x), 0.5, (sg_dropout_where){1, 2, 0});
    y = sg_add_forward(
        tape, y, sg_upsample_nearest_forward(tape, sg_max_pool_forward(tape, x, (sg_pool_options){.window = 2}), 2));
    return sg_softmax_forward(tape, sg_add_forward(tape, y, convolve(tape, n, x)));
}

/* The loss depends on each element of what comes out in another way. */
static double run(const sg_kernel *kernel, middle of, network *n)
{
    float *weights = sg_xcalloc(max_result, sizeof *weights);
    sg_tape *tape = sg_tape_create(kernel);
    sg_error err = {0};
    fill(n);
    sg_initializer_uniform(77, "loss", 1, 0, max_result, weights);
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_variable(tape, n->x, n->dx, 4, (uint64_t[]){images, 1, side, side});
    sg_tensor *w = sg_tape_variable(tape, n->w0, n->dw0, 4, (uint64_t[]){channels, 1, 3, 3});
    x = of(tape, n, sg_conv2d_forward(tape, x, w, NULL, (sg_conv2d_options){.padding = 1}));
    cr_assert(x && x->n_elems <= max_result);
    sg_tensor *row = sg_reshape_forward(tape, x, 1, (uint64_t[]){x->n_elems});
    sg_tensor *target = sg_tape_input(tape, weights, 1, (uint64_t[]){x->n_elems});
    sg_tensor *loss = sg_mean_squared_error_forward(tape, row, target);
    loss = sg_add_forward(tape, loss, sg_mean_forward(tape, sg_multiply_forward(tape, x, x)));
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
    const double value = sg_tape_get(tape, loss, 0);
    sg_tape_destroy(tape);
    free(weights);
    return value;
}

static void compare(middle of, const char *what)
{
    network *want = sg_xcalloc(1, sizeof *want), *n = sg_xcalloc(1, sizeof *n);
    const double loss = run(sg_kernel_ref_float(), of, want);
    for (size_t t = 0; sg_fixture_fast_table(t); t++) {
        memset(n, 0, sizeof *n);
        cr_assert_float_eq(run(sg_fixture_fast_table(t), of, n), loss, 1e-5, "%s", what);
        const float *got = n->dx, *wanted = want->dx;
        const size_t n_elems = (sizeof *n - offsetof(network, dx)) / sizeof(float);
        float largest = 0;
        for (size_t i = 0; i < n_elems; i++) {
            cr_assert_float_eq(got[i], wanted[i], 1e-5F, "%s of %s: gradient %zu is %g, wanted %g", what,
                               sg_fixture_fast_table(t)->name, i, (double)got[i], (double)wanted[i]);
            largest = fmaxf(largest, fabsf(got[i]));
        }
        cr_assert(largest > 1e-3F, "%s: the gradients are all but zero", what);
    }
    free(want);
    free(n);
}

Test(blocks, layers_that_take_images_in_any_order_give_what_the_plain_loops_do)
{
    compare(nothing, "nothing");
    compare(residual, "residual");
    compare(evaluated, "evaluated");
    compare(pooled, "pooled");
}

Test(blocks, layers_that_want_c_order_get_it)
{
    compare(mixed, "mixed");
    compare(in_order, "in_order");
}

/* An element of what lies in blocks is found by its place in C order. */
Test(blocks, an_element_is_the_same_in_any_order)
{
    static float x[2 * channels * 5];
    for (size_t i = 0; i < SG_ARRAY_LEN(x); i++)
        x[i] = (float)i;
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    sg_tape_begin(tape);
    sg_tensor *plain = sg_tape_input(tape, x, 4, (uint64_t[]){2, channels, 1, 5});
    for (size_t block = SG_BLOCK_MIN; block <= SG_BLOCK_MAX; block *= 2) {
        sg_tensor *in_blocks = sg_blocks_arrange(tape, plain, block);
        cr_assert(in_blocks->block == block && in_blocks != plain && sg_blocks_arrange(tape, plain, 0) == plain);
        for (size_t i = 0; i < SG_ARRAY_LEN(x); i++)
            cr_assert(sg_tape_get(tape, in_blocks, i) == (double)i);
        cr_assert(sg_tape_get(tape, in_blocks, SG_ARRAY_LEN(x)) == 0);
    }
    sg_tape_destroy(tape);
}

/* A worker of its own: it has its tape, makes its plans, and repeats its step. */
static void *work(void *of)
{
    network *n = of;
    const sg_kernel *kernel = sg_kernel_onednn() ? sg_kernel_onednn() : sg_kernel_cpu();
    for (size_t i = 0; i < 3; i++)
        run(kernel, residual, n);
    return NULL;
}

Test(blocks, tapes_of_several_threads_do_not_disturb_each_other)
{
    enum { n_threads = 3 };
    sg_kernel_cpu_set_threads(1);
    network *n[n_threads];
    pthread_t threads[n_threads];
    for (size_t i = 0; i < n_threads; i++) {
        n[i] = sg_xcalloc(1, sizeof *n[i]);
        cr_assert(pthread_create(&threads[i], NULL, work, n[i]) == 0);
    }
    for (size_t i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_arr_eq(n[i]->dx, n[0]->dx, sizeof n[0]->dx);
        cr_assert_arr_eq(n[i]->dw1, n[0]->dw1, sizeof n[0]->dw1);
    }
    for (size_t i = 0; i < n_threads; i++)
        free(n[i]);
}

/* Plans are made for each size of batch; those of the past must not pile up. */
Test(blocks, batches_of_ever_other_sizes_are_taken)
{
    enum { most = 1100 };
    static float x[most], w[channels], b[channels];
    if (!sg_kernel_onednn()) {
        cr_log_warn("SKIP: this was built without oneDNN");
        return;
    }
    sg_tape *tape = sg_tape_create(sg_kernel_onednn());
    for (size_t n = 1; n <= most; n++) {
        x[n - 1] = (float)n;
        sg_tape_begin(tape);
        sg_tensor *input = sg_tape_input(tape, x, 4, (uint64_t[]){n, 1, 1, 1});
        sg_tensor *weight = sg_tape_input(tape, w, 4, (uint64_t[]){channels, 1, 1, 1});
        sg_tensor *bias = sg_tape_input(tape, b, 1, (uint64_t[]){channels});
        w[3] = 2, b[3] = 1;
        sg_tensor *y = sg_conv2d_forward(tape, input, weight, bias, (sg_conv2d_options){0});
        cr_assert(sg_tape_get(tape, y, (n - 1) * channels + 3) == 2 * (double)n + 1);
    }
    sg_tape_destroy(tape);
}
