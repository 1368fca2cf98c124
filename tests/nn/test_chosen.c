/* tests/nn/test_chosen.c - going back with respect to chosen variables: they alone get gradients, and the work for
 * others is left out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(chosen, .timeout = 240);

enum { n_rows = 3, width = 4, n_x = n_rows * width, n_weight = width * width };

/* Two networks of one dense layer, the second of which sees what the first makes; elements are the table's. */
typedef struct group {
    void *w, *dw, *b, *db;
    sg_tensor *tensors[2];
} group;

typedef struct pair {
    const sg_kernel *kernel;
    void *x;
    group groups[2];
    size_t n_between; /* times that the way back led from the second to the first */
    sg_tensor *losses[2];
} pair;

static void *elems(const sg_kernel *kernel, const char *name, size_t n)
{
    double *numbers = sg_fixture_noise(name, n);
    for (size_t i = 0; kernel->elem_bytes == sizeof(float) && i < n; i++)
        ((float *)numbers)[i] = (float)numbers[i]; /* from the first on: none is overwritten that is still to be read */
    return numbers;
}

static pair pair_make(const sg_kernel *kernel)
{
    pair p = {.kernel = kernel, .x = elems(kernel, "x", n_x)};
    for (size_t i = 0; i < 2; i++)
        p.groups[i] = (group){.w = elems(kernel, i ? "w1" : "w0", n_weight),
                              .dw = elems(kernel, "dw", n_weight),
                              .b = elems(kernel, i ? "b1" : "b0", width),
                              .db = elems(kernel, "db", width)};
    return p;
}

static void pair_free(pair *p)
{
    free(p->x);
    for (size_t i = 0; i < 2; i++)
        free(p->groups[i].w), free(p->groups[i].dw), free(p->groups[i].b), free(p->groups[i].db);
}

typedef struct between {
    sg_tensor *x;
    size_t *n;
} between;

static void between_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const between *b = state;
    ++*b->n;
    sg_tape_pass_gradient(tape, y, b->x);
}

/* x, on whose way back it is counted. */
static sg_tensor *counted(sg_tape *tape, sg_tensor *x, size_t *n)
{
    sg_tensor *y = sg_tape_view(tape, x, x->rank, x->shape);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = between_backward,
                                          .state = &(between){x, n},
                                          .state_bytes = sizeof(between)});
    return y;
}

/* frozen: number of the group that has no gradients; 2: none. */
static void forward(sg_tape *tape, pair *p, size_t frozen)
{
    sg_tape_begin(tape);
    p->n_between = 0;
    for (size_t i = 0; i < 2; i++) {
        group *g = &p->groups[i];
        const bool trains = i != frozen;
        g->tensors[0] = sg_tape_variable(tape, g->w, trains ? g->dw : NULL, 2, (uint64_t[]){width, width});
        g->tensors[1] = sg_tape_variable(tape, g->b, trains ? g->db : NULL, 1, (uint64_t[]){width});
    }
    sg_tensor *x = sg_tape_input(tape, p->x, 2, (uint64_t[]){n_rows, width});
    sg_tensor *h = sg_dense_forward(tape, x, p->groups[0].tensors[0], p->groups[0].tensors[1], SG_DENSE_RELU);
    sg_tensor *y = sg_dense_forward(tape, counted(tape, h, &p->n_between), p->groups[1].tensors[0],
                                    p->groups[1].tensors[1], SG_DENSE_LINEAR);
    p->losses[0] = sg_mean_forward(tape, sg_tanh_forward(tape, y));
    p->losses[1] = sg_mean_forward(tape, sg_multiply_forward(tape, y, y));
}

static void go_back(sg_tape *tape, const pair *p, size_t of)
{
    sg_error err = {0};
    cr_assert(sg_tape_backward_of(tape, p->losses[of], p->groups[of].tensors, 2, &err) == SG_OK, "%s", err.message);
}

static bool same(const pair *a, const pair *b, size_t of)
{
    return memcmp(a->groups[of].dw, b->groups[of].dw, n_weight * a->kernel->elem_bytes) == 0 &&
           memcmp(a->groups[of].db, b->groups[of].db, width * a->kernel->elem_bytes) == 0;
}

/* As if each group had had a pass of its own, in which the other one was frozen; and the other's stay as they are. */
static void check(const sg_kernel *kernel)
{
    sg_tape *tape = sg_tape_create(kernel);
    pair apart = pair_make(kernel), together = pair_make(kernel), untouched = pair_make(kernel);
    for (size_t of = 0; of < 2; of++) {
        forward(tape, &apart, 1 - of);
        cr_assert(sg_tape_backward(tape, apart.losses[of], NULL) == SG_OK);
    }
    forward(tape, &together, 2);
    go_back(tape, &together, 1);
    cr_assert(same(&together, &apart, 1) && !same(&together, &untouched, 1), "%s: of the second group", kernel->name);
    cr_assert(same(&together, &untouched, 0), "%s: the first group's gradients were written", kernel->name);
    cr_assert_eq(together.n_between, 0, "%s: what only the first group needs was computed", kernel->name);
    go_back(tape, &together, 0);
    cr_assert(same(&together, &apart, 0) && same(&together, &apart, 1), "%s: of both groups", kernel->name);
    cr_assert_eq(together.n_between, 1);
    sg_tape_destroy(tape);
    pair_free(&apart), pair_free(&together), pair_free(&untouched);
}

Test(chosen, each_group_gets_its_gradients_from_one_forward_pass_and_the_others_stay)
{
    check(sg_kernel_ref_double());
    for (size_t k = 0; sg_fixture_fast_table(k); k++)
        check(sg_fixture_fast_table(k));
}

Test(chosen, passes_add_up_whether_for_some_variables_or_for_all)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    pair once = pair_make(sg_kernel_ref_double()), twice = pair_make(sg_kernel_ref_double());
    forward(tape, &once, 2);
    cr_assert(sg_tape_backward(tape, once.losses[0], NULL) == SG_OK);
    forward(tape, &twice, 2);
    go_back(tape, &twice, 0);
    cr_assert(sg_tape_backward(tape, twice.losses[0], NULL) == SG_OK);
    cr_assert(same(&twice, &once, 1), "the second group has one pass's");
    for (size_t i = 0; i < n_weight; i++)
        cr_assert_float_eq(((double *)twice.groups[0].dw)[i], 2 * ((double *)once.groups[0].dw)[i], 1e-15);
    sg_tape_destroy(tape);
    pair_free(&once), pair_free(&twice);
}

Test(chosen, one_that_the_loss_does_not_depend_on_gets_zeros_and_running_statistics_what_was_proposed)
{
    double x[] = {1, 5, 3, 7}, one[2] = {1, 1}, running[2] = {10, 20}, loose = 3;
    double dgamma[2] = {9, 9}, proposed[2] = {9, 9}, dloose = 9;
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    for (size_t n = 1; n <= 2; n++) {
        sg_tape_begin(tape);
        sg_tensor *in = sg_tape_input(tape, x, 2, (uint64_t[]){2, 2});
        sg_tensor *gamma = sg_tape_variable(tape, one, dgamma, 1, (uint64_t[]){2});
        sg_tensor *fixed = sg_tape_variable(tape, one, NULL, 1, (uint64_t[]){2});
        sg_tensor *mean = sg_tape_variable(tape, running, proposed, 1, (uint64_t[]){2});
        sg_tensor *alone = sg_tape_variable(tape, &loose, &dloose, 1, (uint64_t[]){1});
        sg_tensor *y = sg_batch_norm_forward(tape, in, gamma, fixed, mean, fixed,
                                             (sg_batch_norm_options){.training = true, .momentum = 0.5});
        sg_tensor *of[] = {alone, mean};
        cr_assert(sg_tape_backward_of(tape, sg_mean_forward(tape, y), of, n, NULL) == SG_OK);
        cr_assert(dloose == 0 && dgamma[0] == 9 && dgamma[1] == 9);
        cr_assert(proposed[0] == (n == 1 ? 9 : 6) && proposed[1] == (n == 1 ? 9 : 13));
    }
    sg_tape_destroy(tape);
}

Test(chosen, what_is_no_variable_with_a_gradient_is_refused)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    pair p = pair_make(sg_kernel_ref_double()), untouched = pair_make(sg_kernel_ref_double());
    for (size_t i = 0; i < 3; i++) {
        sg_error err = {0};
        forward(tape, &p, 1);
        sg_tensor *wrong[] = {p.losses[0], p.groups[1].tensors[0], NULL};
        sg_tensor *of[] = {p.groups[0].tensors[0], wrong[i]};
        cr_assert(sg_tape_backward_of(tape, p.losses[0], of, 2, &err) == SG_INVALID);
        cr_assert_str_eq(err.message, "going back to number 1 of 2 tensors; wanted variables with gradients");
        cr_assert(same(&p, &untouched, 0) && p.n_between == 0);
    }
    sg_tape_destroy(tape);
    pair_free(&p), pair_free(&untouched);
}
