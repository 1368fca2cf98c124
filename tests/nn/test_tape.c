/* tests/nn/test_tape.c - what the tape does with gradients, errors and memory. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/fixture.h"
#include "worker/nn/initializer.h"

TestSuite(tape, .timeout = 240);

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

/* --- when a gradient is final ---------------------------------------------------------------------------------- */

enum { max_heard = 16 };

/* What was handed out, by tag; each variable is overwritten on the spot, as someone who pulls into it might. */
typedef struct heard {
    size_t tags[max_heard];
    double gradients[max_heard]; /* their first elements */
    size_t n;
    bool overwrites;
} heard;

static void hear(void *user, const sg_tensor *variable, size_t first, size_t n_elems)
{
    heard *h = user;
    cr_assert(h->n < max_heard);
    cr_assert(first == 0 && n_elems == variable->n_elems, "a small variable comes as a whole");
    h->tags[h->n] = variable->tag;
    h->gradients[h->n++] = ((double *)variable->gradient)[0];
    for (size_t i = 0; h->overwrites && i < variable->n_elems; i++)
        ((double *)variable->value)[i] = ((double *)variable->gradient)[i] = NAN;
}

/* A weight (rank 2) or a bias (rank 1). */
static sg_tensor *tagged(sg_tape *tape, size_t tag, double *value, double *gradient, uint32_t rank)
{
    sg_tensor *v = sg_tape_variable(tape, value, gradient, rank, (uint64_t[]){2, 2});
    v->tag = tag;
    return v;
}

static sg_tensor *tagged_dense(sg_tape *tape, size_t tag, sg_tensor *x, layer *l)
{
    return sg_dense_forward(tape, x, tagged(tape, tag, l->w, l->dw, 2), tagged(tape, tag + 1, l->b, l->db, 1),
                            SG_DENSE_RELU);
}

static sg_tensor *tagged_input(sg_tape *tape)
{
    sg_tape_begin(tape);
    return sg_tape_input(tape, rows, 2, (uint64_t[]){2, 2});
}

static void backward_last(sg_tape *tape, const sg_tensor *loss, heard *h)
{
    sg_error err = {0};
    cr_assert(sg_tape_backward_last(tape, loss, hear, h, &err) == SG_OK, "%s", err.message);
}

static void expect_tags(const heard *h, const size_t *tags, size_t n)
{
    cr_assert(h->n == n, "%zu were final, wanted %zu", h->n, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(h->tags[i] == tags[i], "number %zu was variable %zu, wanted %zu", i, h->tags[i], tags[i]);
}

/* What the next forward pass reads first is not the very last. */
Test(tape, the_last_layers_are_final_first_and_may_be_overwritten_at_once)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer kept[3], l[3];
    for (size_t i = 0; i < 3; i++)
        kept[i] = l[i] = layer_make();
    for (int overwrites = 0; overwrites < 2; overwrites++) {
        heard h = {.overwrites = overwrites};
        sg_tensor *x = tagged_input(tape);
        for (size_t i = 0; i < 3; i++)
            x = tagged_dense(tape, 2 * i, x, &l[i]);
        backward_last(tape, sg_softmax_cross_entropy_forward(tape, x, labels, 2), &h);
        expect_tags(&h, (const size_t[]){5, 4, 1, 0, 3, 2}, 6);
        for (size_t i = 0; i < 3 && !overwrites; i++)
            kept[i] = l[i];
        for (size_t i = 0; i < 6; i++) {
            const layer *of = &kept[h.tags[i] / 2];
            cr_assert(h.gradients[i] == (h.tags[i] % 2 ? of->db[0] : of->dw[0]), "overwriting changed the rest");
        }
    }
    sg_tape_destroy(tape);
}

Test(tape, a_variable_that_is_used_twice_is_final_after_both)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer shared = layer_make(), above = layer_make();
    heard h = {0};
    sg_tensor *x = tagged_input(tape);
    sg_tensor *w = tagged(tape, 0, shared.w, shared.dw, 2), *b = tagged(tape, 1, shared.b, shared.db, 1);
    x = sg_dense_forward(tape, x, w, b, SG_DENSE_RELU);
    x = sg_dense_forward(tape, x, w, b, SG_DENSE_RELU);
    x = tagged_dense(tape, 2, x, &above);
    backward_last(tape, sg_softmax_cross_entropy_forward(tape, x, labels, 2), &h);
    expect_tags(&h, (const size_t[]){3, 2, 1, 0}, 4);
    cr_assert(h.gradients[3] == shared.dw[0] && h.gradients[2] == shared.db[0], "the gradient changed afterwards");
    sg_tape_destroy(tape);
}

Test(tape, with_several_losses_variables_are_final_in_the_last_backward_pass)
{
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer below = layer_make(), left = layer_make(), right = layer_make();
    heard h = {0};
    sg_tensor *x = tagged_dense(tape, 0, tagged_input(tape), &below);
    sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, tagged_dense(tape, 2, x, &left), labels, 2);
    sg_tensor *other = sg_softmax_cross_entropy_forward(tape, tagged_dense(tape, 4, x, &right), labels, 2);
    backward(tape, loss);
    double of_left = left.dw[0], of_below = below.dw[0];
    cr_assert(right.dw[0] == 0 && of_left != 0);
    backward_last(tape, other, &h);
    expect_tags(&h, (const size_t[]){5, 4, 1, 0, 3, 2}, 6);
    cr_assert(h.gradients[5] == of_left, "the second loss does not lead there");
    cr_assert(h.gradients[3] == below.dw[0] && below.dw[0] != of_below, "the losses add up");
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_INVALID, "a pass after the last one");
    cr_assert_not_null(strstr(err.message, "after the last one"));
    sg_tape_destroy(tape);
}

/* A variable of a layer to which the loss does not lead, and one that no layer uses. */
Test(tape, variables_that_no_loss_depends_on_are_final_with_zeros)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer used = layer_make(), aside = layer_make(), unused = layer_make();
    heard h = {0};
    sg_tensor *x = tagged_input(tape);
    tagged(tape, 4, unused.w, unused.dw, 2);
    tagged_dense(tape, 2, x, &aside);
    x = tagged_dense(tape, 0, x, &used);
    backward_last(tape, sg_softmax_cross_entropy_forward(tape, x, labels, 2), &h);
    expect_tags(&h, (const size_t[]){3, 2, 1, 0, 4}, 5);
    for (size_t i = 0; i < 5; i++)
        cr_assert((h.gradients[i] == 0) == (h.tags[i] > 1));
    sg_tape_destroy(tape);
}

/* Two networks trained against each other, a group each: what the other group has is frozen in a pass. */
Test(tape, a_frozen_variable_is_never_final)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer maker = layer_make(), judge = layer_make();
    for (int trains_judge = 0; trains_judge < 2; trains_judge++) {
        heard h = {0};
        layer fixed = trains_judge ? maker : judge;
        sg_tensor *x = tagged_input(tape);
        for (size_t i = 0; i < 2; i++) {
            layer *l = i ? &judge : &maker;
            bool trained = (int)i == trains_judge;
            x = sg_dense_forward(tape, x, tagged(tape, 2 * i, l->w, trained ? l->dw : NULL, 2),
                                 tagged(tape, 2 * i + 1, l->b, trained ? l->db : NULL, 1), SG_DENSE_LINEAR);
        }
        backward_last(tape, sg_softmax_cross_entropy_forward(tape, x, labels, 2), &h);
        expect_tags(&h, trains_judge ? (const size_t[]){3, 2} : (const size_t[]){1, 0}, 2);
        cr_assert(memcmp(&fixed, trains_judge ? &maker : &judge, sizeof fixed) == 0);
    }
    sg_tape_destroy(tape);
}

/* --- parts ----------------------------------------------------------------------------------------------------- */

/* A layer of 2 outputs whose variable has 6 elements; its gradient is written two by two: part by part. */
typedef struct parted {
    sg_tensor *variable;
    size_t n_says; /* parts that are told of */
} parted;

static void parted_backward(sg_tape *tape, const void *state, sg_tensor *output)
{
    (void)tape;
    (void)state;
    (void)output;
}

static void parted_backward_variable(sg_tape *tape, const void *state, sg_tensor *output)
{
    const parted *p = state;
    bool accumulate;
    double *gradient = sg_tape_gradient(tape, p->variable, &accumulate);
    for (size_t i = 0; i < 6; i++) {
        gradient[i] = (accumulate ? gradient[i] : 0) + ((double *)output->gradient)[0];
        if (i % 2 == 1 && i / 2 < p->n_says)
            sg_tape_part_written(tape, p->variable, i + 1);
    }
}

static sg_tensor *parted_layer(sg_tape *tape, sg_tensor *x, sg_tensor *variable, size_t n_says)
{
    sg_tensor *y = sg_tape_output(tape, 2, (uint64_t[]){2, 2}, true);
    memcpy(y->value, rows, sizeof rows);
    sg_tensor *inputs[] = {x, variable};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = inputs,
                                          .n_inputs = 2,
                                          .backward = parted_backward,
                                          .backward_weight = parted_backward_variable,
                                          .weight = variable,
                                          .state = &(parted){variable, n_says},
                                          .state_bytes = sizeof(parted)});
    return y;
}

typedef struct heard_part {
    size_t tag, first, n_elems;
} heard_part;

typedef struct heard_parts {
    heard_part list[max_heard];
    size_t n;
} heard_parts;

static void hear_part(void *user, const sg_tensor *variable, size_t first, size_t n_elems)
{
    heard_parts *h = user;
    for (size_t i = first; i < first + n_elems; i++)
        ((double *)variable->gradient)[i] = NAN; /* as one might who has sent it */
    cr_assert(h->n < max_heard);
    h->list[h->n++] = (heard_part){variable->tag, first, n_elems};
}

static void expect_parts(size_t n_layers, size_t n_says, const heard_part *wanted, size_t n)
{
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    double value[6] = {0}, gradient[6];
    heard_parts h = {.n = 0};
    sg_tensor *x = tagged_input(tape);
    sg_tensor *v = sg_tape_variable(tape, value, gradient, 1, (uint64_t[]){6});
    v->tag = 1;
    for (size_t i = 0; i < n_layers; i++)
        x = parted_layer(tape, x, v, n_says);
    cr_assert(sg_tape_backward_last(tape, sg_softmax_cross_entropy_forward(tape, x, labels, 2), hear_part, &h, &err) ==
                  SG_OK,
              "%s", err.message);
    cr_assert(h.n == n, "%zu parts were final, wanted %zu", h.n, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(memcmp(&h.list[i], &wanted[i], sizeof h.list[i]) == 0, "part %zu: %zu elements from %zu on", i,
                  h.list[i].n_elems, h.list[i].first);
    sg_tape_destroy(tape);
}

Test(tape, parts_of_a_variable_are_final_as_they_are_written)
{
    expect_parts(1, 0, (heard_part[]){{1, 0, 6}}, 1);
    expect_parts(1, 2, (heard_part[]){{1, 0, 2}, {1, 2, 2}, {1, 4, 2}}, 3);
    expect_parts(1, 3, (heard_part[]){{1, 0, 2}, {1, 2, 2}, {1, 4, 2}}, 3);
}

/* What the layer that is gone back over first has written is only a summand. */
Test(tape, parts_of_a_variable_that_is_used_twice_are_final_in_the_layer_that_comes_last)
{
    expect_parts(2, 3, (heard_part[]){{1, 0, 2}, {1, 2, 2}, {1, 4, 2}}, 3);
}

enum { n_inputs = 1000, n_outputs = 300 };

/* What is heard of the parts of one, as it is when it is handed out. */
typedef struct large {
    double gradient[n_inputs * n_outputs];
    size_t n_elems, n_parts;
} large;

static void keep_part(void *user, const sg_tensor *variable, size_t first, size_t n_elems)
{
    large *l = user;
    cr_assert(first == l->n_elems && n_elems > 0 && n_elems % n_outputs == 0, "%zu elements from %zu on after %zu",
              n_elems, first, l->n_elems);
    memcpy(l->gradient + first, (double *)variable->gradient + first, n_elems * sizeof(double));
    memset((double *)variable->gradient + first, 0xff, n_elems * sizeof(double));
    l->n_elems += n_elems;
    l->n_parts++;
}

Test(tape, the_gradient_of_a_large_weight_comes_in_parts_from_the_first_row_to_the_last)
{
    static large got;
    const sg_kernel *kernel = sg_kernel_ref_double();
    double *x = sg_fixture_noise("x", (size_t)2 * n_inputs), *w = sg_fixture_noise("w", (size_t)n_inputs * n_outputs);
    double *b = sg_fixture_noise("b", n_outputs), *dw = sg_fixture_noise("dw", (size_t)n_inputs * n_outputs);
    double *want = sg_fixture_noise("want", (size_t)n_inputs * n_outputs);
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(kernel);
    sg_tape_begin(tape);
    sg_tensor *bias = sg_tape_variable(tape, b, NULL, 1, (uint64_t[]){n_outputs});
    sg_tensor *whole = sg_tape_variable(tape, w, want, 2, (uint64_t[]){n_inputs, n_outputs});
    sg_tensor *input = sg_tape_input(tape, x, 2, (uint64_t[]){2, n_inputs});
    sg_tensor *y = sg_dense_forward(tape, input, whole, bias, SG_DENSE_LINEAR);
    sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, y, labels, 2);
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
    sg_tape_begin(tape);
    sg_tensor *weight = sg_tape_variable(tape, w, dw, 2, (uint64_t[]){n_inputs, n_outputs});
    bias = sg_tape_variable(tape, b, NULL, 1, (uint64_t[]){n_outputs});
    input = sg_tape_input(tape, x, 2, (uint64_t[]){2, n_inputs});
    y = sg_dense_forward(tape, input, weight, bias, SG_DENSE_LINEAR);
    loss = sg_softmax_cross_entropy_forward(tape, y, labels, 2);
    cr_assert(sg_tape_backward_last(tape, loss, keep_part, &got, &err) == SG_OK, "%s", err.message);
    cr_assert(got.n_parts > 1 && got.n_elems == (size_t)n_inputs * n_outputs);
    cr_assert(memcmp(got.gradient, want, sizeof got.gradient) == 0, "a part was handed out before it was written");
    sg_tape_destroy(tape);
    free(x), free(w), free(b), free(dw), free(want);
}

/* A weight whose values come as they are asked for, and are no numbers before. */
typedef struct late {
    float *weight, *source; /* [n_inputs, n_outputs] */
    size_t n_elems, n_parts, fails_at;
} late;

static sg_status bring(void *user, const sg_tensor *variable, size_t first, size_t n_elems, sg_error *err)
{
    late *l = user;
    if (variable->tag != 0)
        return SG_OK;
    cr_assert(first == l->n_elems && n_elems > 0 && n_elems % n_outputs == 0, "%zu elements from %zu on after %zu",
              n_elems, first, l->n_elems);
    if (l->n_parts++ == l->fails_at)
        return sg_error_set(err, SG_PEER_LOST, "lost");
    memcpy(l->weight + first, l->source + first, n_elems * sizeof(float));
    l->n_elems += n_elems;
    return SG_OK;
}

static float *float_noise(const char *name, size_t n)
{
    float *x = sg_xcalloc(n, sizeof *x);
    sg_initializer_uniform(11, name, 1, 0, n, x);
    return x;
}

/* [2, n_outputs], or NULL */
static sg_tensor *forward_late(sg_tape *tape, late *l, const float *x, float *bias)
{
    memset(l->weight, 0xff, (size_t)n_inputs * n_outputs * sizeof(float));
    l->n_elems = l->n_parts = 0;
    sg_tape_begin(tape);
    sg_tape_listen_to_reads(tape, bring, l);
    sg_tensor *w = sg_tape_variable(tape, l->weight, NULL, 2, (uint64_t[]){n_inputs, n_outputs});
    sg_tensor *b = sg_tape_variable(tape, bias, NULL, 1, (uint64_t[]){n_outputs});
    b->tag = 1;
    return sg_dense_forward(tape, sg_tape_input(tape, x, 2, (uint64_t[]){2, n_inputs}), w, b, SG_DENSE_LINEAR);
}

Test(tape, a_large_weight_is_read_in_parts_each_when_it_was_asked_for)
{
    const sg_kernel *const kernels[] = {sg_kernel_ref_float(), sg_kernel_cpu(), sg_fixture_device_table()};
    late l = {.weight = sg_xcalloc((size_t)n_inputs * n_outputs, sizeof(float)),
              .source = float_noise("w", (size_t)n_inputs * n_outputs),
              .fails_at = SIZE_MAX};
    float *x = float_noise("x", (size_t)2 * n_inputs), *b = float_noise("b", n_outputs);
    double *xd = sg_fixture_noise("x", (size_t)2 * n_inputs), *wd = sg_fixture_noise("w", (size_t)n_inputs * n_outputs);
    double *want = sg_fixture_noise("b", (size_t)2 * n_outputs);
    sg_kernel_ref_double()->gemm(false, false, 2, n_outputs, n_inputs, xd, wd, false, want);
    for (size_t k = 0; k < SG_ARRAY_LEN(kernels); k++) {
        sg_tape *tape = sg_tape_create(kernels[k]);
        const sg_tensor *y = forward_late(tape, &l, x, b);
        cr_assert(y && l.n_parts > 1 && l.n_elems == (size_t)n_inputs * n_outputs);
        for (size_t i = 0; i < y->n_elems; i++)
            cr_assert_float_eq(sg_tape_get(tape, y, i), want[i] + (double)b[i % n_outputs], 1e-4, "of %s, element %zu",
                               kernels[k]->name, i);
        sg_tape_destroy(tape);
    }
    free(l.weight), free(l.source), free(x), free(b), free(xd), free(wd), free(want);
}

Test(tape, a_part_that_does_not_come_fails_the_pass)
{
    late l = {.weight = sg_xcalloc((size_t)n_inputs * n_outputs, sizeof(float)),
              .source = float_noise("w", (size_t)n_inputs * n_outputs),
              .fails_at = 1};
    float *x = float_noise("x", (size_t)2 * n_inputs), *b = float_noise("b", n_outputs);
    sg_error err;
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    cr_assert_null(forward_late(tape, &l, x, b));
    cr_assert(sg_tape_check(tape, &err) == SG_PEER_LOST && l.n_parts == 2);
    sg_tape_begin(tape);
    cr_assert(sg_dense_forward(tape, sg_tape_input(tape, x, 2, (uint64_t[]){2, n_inputs}),
                               sg_tape_variable(tape, l.source, NULL, 2, (uint64_t[]){n_inputs, n_outputs}),
                               sg_tape_variable(tape, b, NULL, 1, (uint64_t[]){n_outputs}), SG_DENSE_LINEAR),
              "the next pass was listened to");
    cr_assert(l.n_parts == 2);
    sg_tape_destroy(tape);
    free(l.weight), free(l.source), free(x), free(b);
}

static void backward_that_fails(sg_tape *tape, const void *state, sg_tensor *output)
{
    (void)state;
    (void)output;
    sg_tape_fail(tape, SG_EXHAUSTED, "out of luck");
}

Test(tape, after_a_failure_on_the_way_back_nothing_more_is_handed_out)
{
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    layer below = layer_make(), above[3] = {layer_make(), layer_make(), layer_make()};
    heard h = {0};
    sg_tensor *x = tagged_dense(tape, 0, tagged_input(tape), &below);
    sg_tensor *y = sg_tape_output(tape, 2, (uint64_t[]){2, 2}, true);
    memcpy(y->value, x->value, 4 * sizeof(double));
    sg_tape_record(tape, &(sg_tape_layer){.output = y, .inputs = &x, .n_inputs = 1, .backward = backward_that_fails});
    for (size_t i = 0; i < 3; i++)
        y = tagged_dense(tape, 2 + 2 * i, y, &above[i]);
    cr_assert(sg_tape_backward_last(tape, sg_softmax_cross_entropy_forward(tape, y, labels, 2), hear, &h, &err) ==
              SG_EXHAUSTED);
    expect_tags(&h, (const size_t[]){7, 6}, 2);
    sg_tape_destroy(tape);
}

/* However long the chain, few of its gradients are needed at once. */
Test(tape, going_back_uses_the_memory_of_gradients_that_were_read)
{
    enum { N_LAYERS = 20, N_ELEMS = 1000 };
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    double *value = sg_fixture_noise("value", N_ELEMS), *gradient = sg_fixture_noise("gradient", N_ELEMS);
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_variable(tape, value, gradient, 1, (uint64_t[]){N_ELEMS});
    for (size_t i = 0; i < N_LAYERS; i++)
        x = sg_sigmoid_forward(tape, x);
    sg_tensor *loss = sg_mean_forward(tape, x);
    const size_t before_bytes = sg_tape_get_stats(tape).used_bytes;
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
    const size_t taken_bytes = sg_tape_get_stats(tape).used_bytes - before_bytes;
    cr_assert_lt(taken_bytes, 4 * N_ELEMS * sizeof(double), "%zu bytes", taken_bytes);
    sg_tape_destroy(tape);
    free(value), free(gradient);
}
