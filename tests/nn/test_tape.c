/* tests/nn/test_tape.c - what the tape does with gradients, errors and memory. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/nn/fixture.h"

TestSuite(tape, .timeout = 10);

/* One dense layer from 2 inputs to 2 classes, in double. */
typedef struct layer {
    double w[4], dw[4], b[2], db[2];
} layer;

static const double rows[] = {0.5, -0.25, 1, 2};
static const uint32_t labels[] = {0, 1};

static layer layer_make(void)
{
    return (layer){.w = {0.1, 0.2, 0.3, 0.4}, .b = {0.5, -0.5}, .dw = {9, 9, 9, 9}, .db = {9, 9}};
}

static sg_tensor *layer_loss(sg_tape *tape, layer *l)
{
    sg_tensor *x = sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2});
    sg_tensor *w = sg_tape_variable(tape, l->w, l->dw, 2, (uint64_t[]){2, 2});
    sg_tensor *b = sg_tape_variable(tape, l->b, l->db, 1, (uint64_t[]){2});
    return sg_softmax_cross_entropy_forward(tape, sg_dense_forward(tape, x, w, b, SG_DENSE_LINEAR), labels, 2);
}

static void backward(sg_tape *tape, const sg_tensor *loss)
{
    sg_error err = {0};
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
}

Test(tape, the_gradients_of_two_losses_add_up)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer once = layer_make();
    sg_tape_begin(tape);
    backward(tape, layer_loss(tape, &once));

    layer twice = layer_make();
    sg_tape_begin(tape);
    sg_tensor *loss = layer_loss(tape, &twice);
    backward(tape, loss);
    backward(tape, loss);
    for (size_t i = 0; i < 4; i++)
        cr_assert_float_eq(twice.dw[i], 2 * once.dw[i], 1e-15);
    sg_tape_destroy(tape);
}

Test(tape, a_new_pass_begins_with_gradients_of_its_own)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer l = layer_make();
    sg_tape_begin(tape);
    backward(tape, layer_loss(tape, &l));
    layer first = l;
    sg_tape_begin(tape);
    backward(tape, layer_loss(tape, &l));
    cr_assert(memcmp(&first, &l, sizeof l) == 0);
    sg_tape_destroy(tape);
}

Test(tape, a_variable_that_no_loss_depends_on_gets_zeros)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer used = layer_make();
    layer unused = layer_make();
    sg_tape_begin(tape);
    sg_tensor *other_loss = layer_loss(tape, &unused);
    sg_tensor *loss = layer_loss(tape, &used);
    backward(tape, loss);
    for (size_t i = 0; i < 4; i++)
        cr_assert(unused.dw[i] == 0 && used.dw[i] != 0);
    backward(tape, other_loss);
    for (size_t i = 0; i < 4; i++)
        cr_assert(unused.dw[i] == used.dw[i], "what was zero gets the second loss's gradient");
    sg_tape_destroy(tape);
}

Test(tape, a_frozen_variable_gets_no_gradient_and_lets_it_through)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer l = layer_make();
    layer below = layer_make();
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2});
    sg_tensor *w0 = sg_tape_variable(tape, below.w, below.dw, 2, (uint64_t[]){2, 2});
    sg_tensor *b0 = sg_tape_variable(tape, below.b, NULL, 1, (uint64_t[]){2});
    sg_tensor *w = sg_tape_variable(tape, l.w, NULL, 2, (uint64_t[]){2, 2});
    sg_tensor *b = sg_tape_variable(tape, l.b, NULL, 1, (uint64_t[]){2});
    sg_tensor *h = sg_dense_forward(tape, x, w0, b0, SG_DENSE_RELU);
    sg_tensor *logits = sg_dense_forward(tape, h, w, b, SG_DENSE_LINEAR);
    backward(tape, sg_softmax_cross_entropy_forward(tape, logits, labels, 2));
    cr_assert(below.dw[0] != 9 && below.dw[0] != 0);
    cr_assert(l.dw[0] == 9 && l.db[0] == 9 && below.db[0] == 9);
    cr_assert_null(w->gradient);
    cr_assert_null(x->gradient, "the gradient of an input was computed");
    sg_tape_destroy(tape);
}

Test(tape, a_pass_in_which_all_is_frozen_goes_back_over_nothing)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer l = layer_make();
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2});
    sg_tensor *w = sg_tape_variable(tape, l.w, NULL, 2, (uint64_t[]){2, 2});
    sg_tensor *b = sg_tape_variable(tape, l.b, NULL, 1, (uint64_t[]){2});
    backward(tape, sg_softmax_cross_entropy_forward(tape, sg_dense_forward(tape, x, w, b, SG_DENSE_LINEAR), labels, 2));
    cr_assert(l.dw[0] == 9);
    sg_tape_destroy(tape);
}

Test(tape, the_first_error_sticks_until_the_next_pass)
{
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer l = layer_make();
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_input(tape, rows, 2, (uint64_t[]){1, 4});
    sg_tensor *w = sg_tape_variable(tape, l.w, l.dw, 2, (uint64_t[]){2, 2});
    sg_tensor *b = sg_tape_variable(tape, l.b, l.db, 1, (uint64_t[]){2});
    sg_tensor *h = sg_dense_forward(tape, x, w, b, SG_DENSE_LINEAR);
    cr_assert_null(h);
    sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, sg_relu_forward(tape, h), labels, 2);
    cr_assert_null(loss);
    cr_assert_null(sg_tape_input(tape, rows, 1, (uint64_t[]){4}), "nothing is made after an error");
    cr_assert(sg_tape_get(tape, loss, 0) == 0);
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_INVALID);
    cr_assert_str_eq(err.message, "dense: input of rank 2 ending in 4, weight of rank 2 from 2 to 2, bias of rank 1 "
                                  "with 2; wanted [rows, inputs], [inputs, outputs], [outputs]");
    cr_assert(l.dw[0] == 9, "a failed pass wrote gradients");
    sg_tape_begin(tape);
    cr_assert(sg_tape_check(tape, &err) == SG_OK);
    backward(tape, layer_loss(tape, &l));
    sg_tape_destroy(tape);
}

static void expect_invalid(sg_tape *tape, const sg_tensor *loss, const char *part)
{
    sg_error err = {0};
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_INVALID);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    sg_tape_begin(tape);
}

Test(tape, what_does_not_fit_is_named)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2});
    expect_invalid(tape, sg_softmax_cross_entropy_forward(tape, x, labels, 1), "2 rows and 1 labels");
    x = sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2});
    expect_invalid(tape, sg_softmax_cross_entropy_forward(tape, x, (uint32_t[]){1, 2}, 2), "label 2 in row 1");
    expect_invalid(tape, sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2}), "4 elements");
    expect_invalid(tape, NULL, "no loss");
    expect_invalid(tape, sg_tape_input(tape, rows, 9, (uint64_t[9]){0}), "9 dimensions");
    expect_invalid(tape, sg_tape_input(tape, rows, 2, (uint64_t[]){UINT64_MAX, 2}), "more elements");
    sg_tape_destroy(tape);
}

Test(tape, a_pass_that_finds_no_memory_says_so)
{
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    cr_assert_null(sg_tape_alloc(tape, SIZE_MAX / 2));
    cr_assert(sg_tape_check(tape, &err) == SG_EXHAUSTED);
    cr_assert_not_null(strstr(err.message, "smaller batch"));
    sg_tape_destroy(tape);
    sg_tape_destroy(NULL);
}
