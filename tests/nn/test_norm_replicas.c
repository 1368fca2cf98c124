/* tests/nn/test_norm_replicas.c - batch_norm over a batch of which two tapes, on two threads, have a part each. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(norm_replicas, .timeout = 240);

enum { n_images = 8, n_channels = 16, side = 3, per_image = n_channels * side * side };
enum { n_x = n_images * per_image, n_weight = n_channels * n_channels, n_small = n_channels };

/* Two that wait for each other. */
typedef struct meeting {
    pthread_barrier_t barrier;
    double said[2][2 * n_channels + 1];
    size_t n_calls; /* of the first one */
} meeting;

/* One replica, or the whole batch; elements are float or double, as the table has them. */
typedef struct replica {
    const sg_kernel *kernel;
    meeting *meeting;        /* NULL: there is one replica */
    size_t number, first, n; /* images */
    void *x, *dx, *factors, *w, *dw, *values[4], *gradients[4], *y;
    sg_error err;
    sg_status status;
    uint64_t allocations[2]; /* after the second pass, and the last */
} replica;

static sg_status add_up(void *user, double *sums, size_t n, sg_error *err)
{
    (void)err;
    replica *r = user;
    memcpy(r->meeting->said[r->number], sums, n * sizeof *sums);
    pthread_barrier_wait(&r->meeting->barrier);
    for (size_t i = 0; i < n; i++)
        sums[i] = r->meeting->said[0][i] + r->meeting->said[1][i];
    pthread_barrier_wait(&r->meeting->barrier);
    if (r->number == 0)
        r->meeting->n_calls++;
    return SG_OK;
}

static void *elems(const sg_kernel *kernel, const double *numbers, size_t n)
{
    double *out = sg_xcalloc(n, sizeof(double));
    for (size_t i = 0; i < n; i++) {
        if (kernel->elem_bytes == sizeof(double))
            out[i] = numbers[i];
        else
            ((float *)out)[i] = (float)numbers[i];
    }
    return out;
}

static void *noise(const sg_kernel *kernel, const char *name, size_t n, double shift)
{
    double *numbers = sg_fixture_noise(name, n);
    for (size_t i = 0; i < n; i++)
        numbers[i] += shift;
    void *out = elems(kernel, numbers, n);
    free(numbers);
    return out;
}

static void *from(const replica *r, void *all)
{
    return (char *)all + r->first * per_image * r->kernel->elem_bytes;
}

/* A convolution, so that oneDNN may have its blocks, the norm, and a loss that is a sum over images. */
static void one_pass(replica *r, sg_tape *tape)
{
    static const char *const names[] = {"gamma", "beta", "mean", "variance"};
    const uint64_t shape[] = {r->n, n_channels, side, side}, of_channel[] = {n_channels};
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_variable(tape, from(r, r->x), from(r, r->dx), 4, shape), *of[SG_ARRAY_LEN(names)];
    sg_tensor *w = sg_tape_variable(tape, r->w, r->dw, 4, (uint64_t[]){n_channels, n_channels, 1, 1});
    for (size_t i = 0; i < SG_ARRAY_LEN(names); i++)
        of[i] = sg_tape_variable(tape, r->values[i], r->gradients[i], 1, of_channel);
    sg_batch_norm_options options = {.training = true, .relu = true};
    if (r->meeting)
        options.replicas = (sg_batch_norm_replicas){.add_up = add_up, .user = r};
    sg_tensor *h = sg_conv2d_forward(tape, x, w, NULL, (sg_conv2d_options){0});
    sg_tensor *y = sg_batch_norm_forward(tape, h, of[0], of[1], of[2], of[3], options);
    sg_tensor *factors = sg_tape_input(tape, from(r, r->factors), 4, shape);
    sg_tensor *loss = sg_sum_forward(tape, sg_multiply_forward(tape, sg_multiply_forward(tape, y, y), factors));
    r->status = sg_tape_backward(tape, loss, &r->err);
    for (size_t i = 0; r->status == SG_OK && i < y->n_elems; i++)
        ((double *)r->y)[r->first * per_image + i] = sg_tape_get(tape, y, i);
}

static void *run(void *user)
{
    replica *r = user;
    sg_tape *tape = sg_tape_create(r->kernel);
    for (size_t i = 0; i < 4; i++) {
        one_pass(r, tape);
        r->allocations[i > 1] = sg_tape_get_stats(tape).allocations;
    }
    sg_tape_destroy(tape);
    return NULL;
}

/* What all replicas have in common. */
static replica replica_make(const sg_kernel *kernel)
{
    replica r = {.kernel = kernel, .n = n_images};
    r.x = noise(kernel, "x", n_x, 3), r.dx = noise(kernel, "dx", n_x, 0);
    r.factors = noise(kernel, "factors", n_x, 0);
    r.w = noise(kernel, "w", n_weight, 0), r.dw = noise(kernel, "dw", n_weight, 0);
    r.y = sg_xcalloc(n_x, sizeof(double));
    for (size_t i = 0; i < 4; i++) {
        r.values[i] = noise(kernel, "value", n_small, 2);
        r.gradients[i] = noise(kernel, "gradient", n_small, 0);
    }
    return r;
}

static void replica_free(replica *r)
{
    free(r->x), free(r->dx), free(r->factors), free(r->w), free(r->dw), free(r->y);
    for (size_t i = 0; i < 4; i++)
        free(r->values[i]), free(r->gradients[i]);
}

static double at(const replica *r, const void *elems_of, size_t i)
{
    return r->kernel->elem_bytes == sizeof(double) ? ((const double *)elems_of)[i]
                                                   : (double)((const float *)elems_of)[i];
}

static void expect_near(const replica *r, double got, double want, const char *what, size_t i)
{
    const double tolerance = r->kernel->elem_bytes == sizeof(double) ? 1e-11 : 1e-3;
    cr_assert(fabs(got - want) <= tolerance * fmax(1, fabs(want)), "%s, %s, element %zu: %.9g, wanted %.9g",
              r->kernel->name, what, i, got, want);
}

static void compare(const replica *whole, const replica *parts)
{
    for (size_t i = 0; i < n_x; i++) {
        const replica *part = &parts[i >= parts[1].first * per_image];
        expect_near(whole, ((double *)part->y)[i], ((double *)whole->y)[i], "y", i);
        expect_near(whole, at(part, part->dx, i), at(whole, whole->dx, i), "dx", i);
    }
    for (size_t i = 0; i < n_weight; i++)
        expect_near(whole, at(&parts[0], parts[0].dw, i) + at(&parts[1], parts[1].dw, i), at(whole, whole->dw, i), "dw",
                    i);
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < n_channels; i++) {
            const double a = at(&parts[0], parts[0].gradients[k], i), b = at(&parts[1], parts[1].gradients[k], i);
            const double want = at(whole, whole->gradients[k], i);
            expect_near(whole, k < 2 ? a + b : a, want, "gradient of the norm's", k);
            cr_assert(k < 2 || a == b, "the replicas propose something else");
        }
    }
}

/* The parts have first and n_images - first images. */
static void check(const sg_kernel *kernel, size_t first)
{
    replica whole = replica_make(kernel), parts[2] = {replica_make(kernel), replica_make(kernel)};
    meeting m = {.n_calls = 0};
    pthread_t other;
    cr_assert(pthread_barrier_init(&m.barrier, NULL, 2) == 0);
    for (size_t i = 0; i < 2; i++) {
        parts[i].meeting = &m, parts[i].number = i;
        parts[i].first = i ? first : 0, parts[i].n = i ? n_images - first : first;
    }
    run(&whole);
    cr_assert(pthread_create(&other, NULL, run, &parts[1]) == 0);
    run(&parts[0]);
    cr_assert(pthread_join(other, NULL) == 0);
    pthread_barrier_destroy(&m.barrier);
    const replica *const all[] = {&whole, &parts[0], &parts[1]};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++) {
        cr_assert(all[i]->status == SG_OK, "%s: %s", kernel->name, all[i]->err.message);
        cr_assert(all[i]->allocations[0] == all[i]->allocations[1], "%s: a pass of known size allocated", kernel->name);
    }
    cr_assert(m.n_calls == 4 * 3);
    compare(&whole, parts);
    replica_free(&whole), replica_free(&parts[0]), replica_free(&parts[1]);
}

Test(norm_replicas, two_parts_of_a_batch_give_the_values_and_gradients_of_the_whole)
{
    check(sg_kernel_ref_double(), 4);
    check(sg_kernel_ref_double(), 3);
}

Test(norm_replicas, a_replica_without_rows_changes_nothing)
{
    check(sg_kernel_ref_double(), n_images);
}

Test(norm_replicas, every_table_does_so)
{
    for (size_t k = 0; sg_fixture_fast_table(k); k++)
        check(sg_fixture_fast_table(k), 5);
}

static sg_status fails(void *user, double *sums, size_t n, sg_error *err)
{
    (void)sums;
    (void)n;
    size_t *n_left = user;
    return (*n_left)-- > 0 ? SG_OK : sg_error_set(err, SG_PEER_LOST, "a replica is lost");
}

Test(norm_replicas, a_failure_is_that_of_the_pass)
{
    double x[6] = {1, 2, 3, 4, 5, 6}, dx[6], ones[2] = {1, 1}, gradient[2];
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    for (size_t n_good = 0; n_good <= 3; n_good++) {
        size_t n_left = n_good;
        sg_error err = {0};
        sg_tape_begin(tape);
        sg_tensor *v = sg_tape_variable(tape, x, dx, 2, (uint64_t[]){3, 2});
        sg_tensor *of = sg_tape_variable(tape, ones, gradient, 1, (uint64_t[]){2});
        sg_tensor *y = sg_batch_norm_forward(tape, v, of, of, of, of,
                                             (sg_batch_norm_options){.training = true, .replicas = {fails, &n_left}});
        cr_assert((y != NULL) == (n_good >= 2));
        const sg_status status = sg_tape_backward(tape, sg_fixture_loss(tape, y), &err);
        cr_assert(status == (n_good < 3 ? SG_PEER_LOST : SG_OK), "%zu good: %s", n_good, err.message);
        cr_assert(n_good == 3 || strcmp(err.message, "a replica is lost") == 0);
    }
    sg_tape_destroy(tape);
}
