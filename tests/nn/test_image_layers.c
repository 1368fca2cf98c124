/* tests/nn/test_image_layers.c - convolution, pooling, means and reshaping: gradients against finite differences in
 * double precision, results by hand, and what does not fit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(image_layers, .timeout = 240);

/* x goes through the layer that `apply` makes. */
typedef struct image image;
struct image {
    sg_tensor *(*apply)(sg_tape *tape, image *m, sg_tensor *x);
    uint64_t shape[4], weight_shape[4];
    sg_conv2d_options conv;
    sg_pool_options pool;
    bool with_bias;
    double *x, *dx, *w, *dw, *b, *db;
};

static size_t product(const uint64_t shape[4])
{
    return shape[0] * shape[1] * shape[2] * shape[3];
}

static sg_tensor *image_pass(sg_tape *tape, void *user)
{
    image *m = user;
    return sg_fixture_loss(tape, m->apply(tape, m, sg_tape_variable(tape, m->x, m->dx, 4, m->shape)));
}

static sg_tensor *apply_conv(sg_tape *tape, image *m, sg_tensor *x)
{
    sg_tensor *w = sg_tape_variable(tape, m->w, m->dw, 4, m->weight_shape);
    sg_tensor *b = m->with_bias ? sg_tape_variable(tape, m->b, m->db, 1, m->weight_shape) : NULL;
    return sg_conv2d_forward(tape, x, w, b, m->conv);
}

static void check(image *m)
{
    const size_t n_x = product(m->shape), n_w = product(m->weight_shape), n_b = m->weight_shape[0];
    m->x = sg_fixture_noise("x", n_x), m->dx = sg_fixture_noise("dx", n_x);
    m->w = sg_fixture_noise("w", n_w), m->dw = sg_fixture_noise("dw", n_w);
    m->b = sg_fixture_noise("b", n_b), m->db = sg_fixture_noise("db", n_b);
    sg_fixture_check_gradient(image_pass, m, m->x, m->dx, n_x, "x");
    sg_fixture_check_gradient(image_pass, m, m->w, m->dw, n_w, "weight");
    if (m->with_bias)
        sg_fixture_check_gradient(image_pass, m, m->b, m->db, n_b, "bias");
    double *const all[] = {m->x, m->dx, m->w, m->dw, m->b, m->db};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        free(all[i]);
}

Test(image_layers, gradients_of_a_convolution_are_slopes)
{
    static const sg_conv2d_options options[] = {{0}, {.padding = 1}, {.stride = 2, .padding = 1}};
    for (size_t i = 0; i < SG_ARRAY_LEN(options); i++) {
        image m = {.apply = apply_conv,
                   .shape = {2, 3, 6, 5},
                   .weight_shape = {4, 3, 3, 3},
                   .conv = options[i],
                   .with_bias = i % 2 == 0};
        check(&m);
    }
}

Test(image_layers, gradients_of_a_convolution_in_groups_are_slopes)
{
    image m = {.apply = apply_conv,
               .shape = {2, 4, 5, 5},
               .weight_shape = {6, 2, 3, 2},
               .conv = {.padding = 1, .groups = 2},
               .with_bias = true};
    check(&m);
}

static sg_tensor *apply_max_pool(sg_tape *tape, image *m, sg_tensor *x)
{
    return sg_max_pool_forward(tape, x, m->pool);
}

static sg_tensor *apply_average_pool(sg_tape *tape, image *m, sg_tensor *x)
{
    return sg_average_pool_forward(tape, x, m->pool);
}

Test(image_layers, gradients_of_pooling_are_slopes)
{
    static const sg_pool_options options[] = {{.window = 2}, {.window = 3, .stride = 2, .padding = 1}};
    for (size_t i = 0; i < SG_ARRAY_LEN(options); i++) {
        image m = {.apply = apply_max_pool, .shape = {2, 2, 6, 7}, .pool = options[i]};
        check(&m);
        m.apply = apply_average_pool;
        check(&m);
    }
}

static sg_tensor *apply_global_average(sg_tape *tape, image *m, sg_tensor *x)
{
    (void)m;
    return sg_global_average_pool_forward(tape, x);
}

/* Both: the mean of what was already reshaped, next to a second use of the same tensor. */
static sg_tensor *apply_mean(sg_tape *tape, image *m, sg_tensor *x)
{
    (void)m;
    sg_tensor *flat = sg_flatten_forward(tape, sg_max_pool_forward(tape, x, (sg_pool_options){.window = 2}));
    return sg_mean_forward(tape, flat);
}

Test(image_layers, gradients_of_means_are_slopes)
{
    image m = {.apply = apply_global_average, .shape = {3, 4, 3, 2}};
    check(&m);
    m.apply = apply_mean;
    check(&m);
}

/* The gradient of what is reshaped twice is the sum of both, in whatever order and in each of two passes. */
Test(image_layers, gradients_of_what_is_reshaped_twice_add_up)
{
    enum { n = 6 };
    double *x = sg_fixture_noise("x", n), *dx = sg_fixture_noise("dx", n), once[n];
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    for (int uses = 1; uses <= 2; uses++) {
        sg_tape_begin(tape);
        sg_tensor *v = sg_tape_variable(tape, x, dx, 2, (uint64_t[]){2, 3});
        sg_tensor *h = sg_relu_forward(tape, v);
        sg_tensor *a = sg_reshape_forward(tape, h, 1, (uint64_t[]){n});
        sg_tensor *b = sg_reshape_forward(tape, h, 2, (uint64_t[]){3, 2});
        sg_tensor *loss_a = sg_mean_forward(tape, sg_relu_forward(tape, a));
        sg_tensor *loss_b = sg_mean_forward(tape, b);
        cr_assert(sg_tape_backward(tape, loss_a, NULL) == SG_OK);
        if (uses == 1)
            memcpy(once, dx, sizeof once);
        if (uses == 2) {
            cr_assert(sg_tape_backward(tape, loss_b, NULL) == SG_OK);
            cr_assert(sg_tape_backward(tape, loss_a, NULL) == SG_OK);
        }
    }
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        cr_assert_float_eq(dx[i], 3 * once[i], 1e-12);
        largest = fmax(largest, dx[i]);
    }
    cr_assert(largest > 0.1);
    sg_tape_destroy(tape);
    free(x), free(dx);
}

Test(image_layers, a_convolution_with_frozen_weight_lets_the_gradient_through)
{
    static double x[16], dx[16], weight[4] = {1, 2, 3, 4}, want[16];
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *v = sg_tape_variable(tape, x, dx, 4, (uint64_t[]){1, 1, 4, 4});
    sg_tensor *w = sg_tape_variable(tape, weight, NULL, 4, (uint64_t[]){1, 1, 2, 2});
    sg_tensor *y = sg_conv2d_forward(tape, v, w, NULL, (sg_conv2d_options){.stride = 2});
    cr_assert(sg_tape_backward(tape, sg_mean_forward(tape, y), NULL) == SG_OK);
    for (size_t i = 0; i < 16; i++)
        want[i] = weight[i / 4 % 2 * 2 + i % 2] / 4;
    cr_assert_arr_eq(dx, want, sizeof want);
    cr_assert_null(w->gradient);
    sg_tape_destroy(tape);
}

Test(image_layers, no_images_give_no_output_and_zero_gradients)
{
    const sg_kernel *const kernels[] = {sg_kernel_ref_double(), sg_kernel_ref_float(), sg_kernel_cpu(),
                                        sg_kernel_onednn()};
    for (size_t k = 0; k < SG_ARRAY_LEN(kernels) && kernels[k]; k++) {
        double w[18] = {0}, dw[18] = {9}, b[2] = {0}, db[2] = {9};
        sg_tape *tape = sg_tape_create(kernels[k]);
        sg_tape_begin(tape);
        sg_tensor *x = sg_tape_input(tape, NULL, 4, (uint64_t[]){0, 1, 6, 6});
        sg_tensor *weight = sg_tape_variable(tape, w, dw, 4, (uint64_t[]){2, 1, 3, 3});
        sg_tensor *bias = sg_tape_variable(tape, b, db, 1, (uint64_t[]){2});
        sg_tensor *y = sg_conv2d_forward(tape, x, weight, bias, (sg_conv2d_options){0});
        y = sg_max_pool_forward(tape, y, (sg_pool_options){.window = 2});
        sg_tensor *loss = sg_mean_forward(tape, sg_flatten_forward(tape, y));
        sg_error err = {0};
        cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
        cr_assert(sg_tape_get(tape, loss, 0) == 0);
        for (size_t i = 0; i < 18; i++)
            cr_assert(kernels[k]->get(dw, i) == 0);
        cr_assert(kernels[k]->get(db, 0) == 0 && kernels[k]->get(db, 1) == 0);
        sg_tape_destroy(tape);
    }
}

static sg_tensor *zeros(sg_tape *tape, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    static const double values[1024];
    return sg_tape_input(tape, values, 4, (uint64_t[]){a, b, c, d});
}

Test(image_layers, what_does_not_fit_is_told_with_all_shapes)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *y = sg_conv2d_forward(tape, zeros(tape, 2, 3, 6, 6), zeros(tape, 4, 2, 3, 3), NULL,
                                     (sg_conv2d_options){.padding = 1});
    sg_fixture_expect_error(
        tape, y,
        "conv2d: input [2, 3, 6, 6], weight [4, 2, 3, 3], bias none, stride 1, padding 1, groups 1; wanted "
        "[images, channels, height, width], [outputs, channels / groups, height, width] that fits into the "
        "padded input, [outputs]");
    y = sg_max_pool_forward(tape, zeros(tape, 1, 1, 3, 3), (sg_pool_options){.window = 4});
    sg_fixture_expect_error(
        tape, y,
        "max_pool: input [1, 1, 3, 3], window 4, stride 4, padding 0; wanted [images, channels, height, "
        "width], a window of 1 to 15 that fits into it, and padding of at most half of that");
    y = sg_reshape_forward(tape, zeros(tape, 1, 1, 3, 3), 2, (uint64_t[]){2, 5});
    sg_fixture_expect_error(tape, y, "reshape: [1, 1, 3, 3] to [2, 5]; wanted as many elements");
    y = sg_global_average_pool_forward(tape, sg_flatten_forward(tape, zeros(tape, 1, 1, 3, 3)));
    sg_fixture_expect_error(tape, y, "global_average_pool: input [1, 9]; wanted [images, channels, height, width]");
    sg_tape_destroy(tape);
}

Test(image_layers, absurd_sizes_are_refused)
{
    static const struct {
        uint64_t weight[4];
        sg_conv2d_options options;
    } bad[] = {{{4, 3, 7, 7}, {0}},
               {{4, 3, 0, 3}, {0}},
               {{0, 3, 3, 3}, {0}},
               {{4, 1, 3, 3}, {.groups = 2}},
               {{4, 1, 3, 3}, {.groups = 3}},
               {{4, 3, 3, 3}, {.stride = UINT64_MAX}},
               {{4, 3, 3, 3}, {.padding = UINT64_MAX}},
               {{4, 3, 3, 3}, {.padding = (uint64_t)1 << 29}}}; /* 2^61 elements */
    for (size_t i = 0; i < SG_ARRAY_LEN(bad); i++) {
        sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
        sg_tape_begin(tape);
        const uint64_t *w = bad[i].weight;
        cr_assert_null(
            sg_conv2d_forward(tape, zeros(tape, 2, 3, 6, 6), zeros(tape, w[0], w[1], w[2], w[3]), NULL, bad[i].options),
            "case %zu", i);
        cr_assert(sg_tape_check(tape, NULL) != SG_OK);
        sg_tape_destroy(tape);
    }
}

Test(image_layers, scratch_memory_is_taken_once)
{
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    size_t used[3];
    for (size_t pass = 0; pass < 3; pass++) {
        sg_tape_begin(tape);
        char *small = sg_tape_scratch(tape, 100);
        char *large = sg_tape_scratch(tape, 100000);
        cr_assert(small && large && sg_tape_scratch(tape, 100000) == large && sg_tape_scratch(tape, 5) == large);
        memset(large, 1, 100000);
        used[pass] = sg_tape_get_stats(tape).used_bytes;
    }
    cr_assert(used[1] == used[2] && used[1] < used[0], "%zu, %zu, %zu", used[0], used[1], used[2]);
    sg_tape_destroy(tape);
}
