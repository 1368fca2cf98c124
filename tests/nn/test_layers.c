/* tests/nn/test_layers.c - each layer's gradient against finite differences in double precision. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(layers, .timeout = 240);

/* Two dense layers and a loss; x is a variable, so that its gradient is computed, too. */
typedef struct network {
    sg_dense_activation activation;
    bool separate_relu, uses_weight_twice;
    size_t rows;
    double *x, *dx, *w, *dw, *b, *db, *w2, *dw2, *b2, *db2;
    uint32_t labels[8];
} network;

enum { inputs = 5, hidden = 7, classes = 4 };

static network network_make(size_t rows)
{
    network n = {.rows = rows, .labels = {0, 3, 2, 1, 1, 0, 2, 3}};
    n.x = sg_fixture_noise("x", rows * inputs);
    n.w = sg_fixture_noise("w", inputs * hidden);
    n.b = sg_fixture_noise("b", hidden);
    n.w2 = sg_fixture_noise("w2", hidden * classes);
    n.b2 = sg_fixture_noise("b2", classes);
    n.dx = sg_fixture_noise("dx", rows * inputs); /* noise: whatever the buffers held is overwritten */
    n.dw = sg_fixture_noise("dw", inputs * hidden);
    n.db = sg_fixture_noise("db", hidden);
    n.dw2 = sg_fixture_noise("dw2", hidden * classes);
    n.db2 = sg_fixture_noise("db2", classes);
    return n;
}

static void network_free(network *n)
{
    double *const all[] = {n->x, n->w, n->b, n->w2, n->b2, n->dx, n->dw, n->db, n->dw2, n->db2};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        free(all[i]);
}

static sg_tensor *network_pass(sg_tape *tape, void *user)
{
    network *n = user;
    sg_tensor *x = sg_tape_variable(tape, n->x, n->dx, 2, (uint64_t[]){n->rows, inputs});
    sg_tensor *w = sg_tape_variable(tape, n->w, n->dw, 2, (uint64_t[]){inputs, hidden});
    sg_tensor *b = sg_tape_variable(tape, n->b, n->db, 1, (uint64_t[]){hidden});
    sg_tensor *w2 = sg_tape_variable(tape, n->w2, n->dw2, 2, (uint64_t[]){hidden, classes});
    sg_tensor *b2 = sg_tape_variable(tape, n->b2, n->db2, 1, (uint64_t[]){classes});
    sg_tensor *h = sg_dense_forward(tape, x, w, b, n->activation);
    if (n->separate_relu)
        h = sg_relu_forward(tape, h);
    sg_tensor *logits = sg_dense_forward(tape, h, w2, b2, SG_DENSE_LINEAR);
    return sg_softmax_cross_entropy_forward(tape, logits, n->labels, n->rows);
}

static void check_network(network *n)
{
    sg_fixture_check_gradient(network_pass, n, n->x, n->dx, n->rows * inputs, "x");
    sg_fixture_check_gradient(network_pass, n, n->w, n->dw, (size_t)inputs * hidden, "w");
    sg_fixture_check_gradient(network_pass, n, n->b, n->db, hidden, "b");
    sg_fixture_check_gradient(network_pass, n, n->w2, n->dw2, (size_t)hidden * classes, "w2");
    sg_fixture_check_gradient(network_pass, n, n->b2, n->db2, classes, "b2");
}

Test(layers, gradients_of_linear_dense_layers_and_cross_entropy_are_slopes)
{
    network n = network_make(6);
    check_network(&n);
    network_free(&n);
}

Test(layers, gradients_of_a_dense_layer_with_relu_are_slopes)
{
    network n = network_make(6);
    n.activation = SG_DENSE_RELU;
    check_network(&n);
    network_free(&n);
}

Test(layers, gradients_of_relu_on_its_own_are_slopes)
{
    network n = network_make(6);
    n.separate_relu = true;
    check_network(&n);
    network_free(&n);
}

Test(layers, a_single_row_works)
{
    network n = network_make(1);
    n.activation = SG_DENSE_RELU;
    check_network(&n);
    network_free(&n);
}

/* A weight that is read in blocks of 16384 rows. */
typedef struct tall {
    double *x, *dx, *w, *dw, *b;
} tall;

enum { tall_inputs = 40000, block_end = 16384 };

static sg_tensor *tall_pass(sg_tape *tape, void *user)
{
    tall *t = user;
    static const uint32_t labels[] = {3};
    sg_tensor *x = sg_tape_variable(tape, t->x, t->dx, 2, (uint64_t[]){1, tall_inputs});
    sg_tensor *w = sg_tape_variable(tape, t->w, t->dw, 2, (uint64_t[]){tall_inputs, classes});
    sg_tensor *b = sg_tape_variable(tape, t->b, NULL, 1, (uint64_t[]){classes});
    return sg_softmax_cross_entropy_forward(tape, sg_dense_forward(tape, x, w, b, SG_DENSE_LINEAR), labels, 1);
}

Test(layers, gradients_of_a_layer_that_is_computed_in_blocks_are_slopes)
{
    tall t = {.x = sg_fixture_noise("x", tall_inputs),
              .dx = sg_fixture_noise("dx", tall_inputs),
              .w = sg_fixture_noise("w", (size_t)tall_inputs * classes),
              .dw = sg_fixture_noise("dw", (size_t)tall_inputs * classes),
              .b = sg_fixture_noise("b", classes)};
    for (size_t i = 0; i < tall_inputs; i++)
        t.x[i] *= 0.01; /* the probabilities are neither 0 nor 1 */
    static const size_t firsts[] = {0, block_end - 2, tall_inputs - 4};
    for (size_t i = 0; i < SG_ARRAY_LEN(firsts); i++) {
        sg_fixture_check_gradient(tall_pass, &t, t.x + firsts[i], t.dx + firsts[i], 4, "x");
        const size_t first = firsts[i] * classes;
        sg_fixture_check_gradient(tall_pass, &t, t.w + first, t.dw + first, (size_t)4 * classes, "w");
    }
    free(t.x), free(t.dx), free(t.w), free(t.dw), free(t.b);
}

/* A square weight that is used by two layers, and twice in the sum that is the loss of a one-column output. */
typedef struct shared {
    double *w, *dw, *b, *db;
    uint32_t labels[3];
} shared;

static sg_tensor *shared_pass(sg_tape *tape, void *user)
{
    shared *s = user;
    static const double x[] = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6};
    sg_tensor *h = sg_tape_input(tape, x, 2, (uint64_t[]){3, 2});
    sg_tensor *w = sg_tape_variable(tape, s->w, s->dw, 2, (uint64_t[]){2, 2});
    sg_tensor *b = sg_tape_variable(tape, s->b, s->db, 1, (uint64_t[]){2});
    h = sg_dense_forward(tape, h, w, b, SG_DENSE_LINEAR);
    h = sg_relu_forward(tape, h);
    h = sg_dense_forward(tape, h, w, b, SG_DENSE_LINEAR);
    return sg_softmax_cross_entropy_forward(tape, h, s->labels, 3);
}

Test(layers, a_variable_that_is_used_twice_gets_the_sum_of_both_gradients)
{
    shared s = {.w = sg_fixture_noise("w", 4),
                .dw = sg_fixture_noise("dw", 4),
                .b = sg_fixture_noise("b", 2),
                .db = sg_fixture_noise("db", 2),
                .labels = {0, 1, 1}};
    sg_fixture_check_gradient(shared_pass, &s, s.w, s.dw, 4, "w");
    sg_fixture_check_gradient(shared_pass, &s, s.b, s.db, 2, "b");
    free(s.w);
    free(s.dw);
    free(s.b);
    free(s.db);
}

Test(layers, no_rows_give_no_loss_and_zero_gradients)
{
    network n = network_make(0);
    n.activation = SG_DENSE_RELU;
    const sg_kernel *const kernels[] = {sg_kernel_ref_double(), sg_kernel_ref_float(), sg_kernel_cpu()};
    for (size_t k = 0; k < SG_ARRAY_LEN(kernels); k++) {
        sg_error err = {0};
        sg_tape *tape = sg_tape_create(kernels[k]);
        sg_tape_begin(tape);
        sg_tensor *loss = network_pass(tape, &n);
        cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
        cr_assert(sg_tape_get(tape, loss, 0) == 0);
        for (size_t i = 0; i < (size_t)inputs * hidden; i++)
            cr_assert(kernels[k]->get(n.dw, i) == 0);
        for (size_t i = 0; i < classes; i++)
            cr_assert(kernels[k]->get(n.db2, i) == 0);
        sg_tape_destroy(tape);
    }
    network_free(&n);
}

Test(layers, counting_finds_the_rows_whose_label_is_largest)
{
    static const double logits[] = {1, 2, 3, 3, 2, 1, 0, 5, 0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_input(tape, logits, 2, (uint64_t[]){3, 3});
    cr_assert(sg_softmax_cross_entropy_count_correct(tape, x, (uint32_t[]){2, 0, 0}, 3) == 2);
    sg_tape_destroy(tape);
}
