/* Workers that exchange while they compute, beside workers that do not: variables pushed one by one, the last one
 * first, and steps begun while values of theirs are on their way. Sums are the same as ever, to the bit. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "cluster.h"
#include "common/status.h"

#define N_VARIABLES 6u
#define N_ELEMS     40u /* of each: three slices */
#define N_STEPS     40u

TestSuite(overlap, .timeout = 60);

typedef struct trainer {
    const cluster *of;
    uint32_t index;
    bool in_pieces, in_parts, values_later;
    pthread_t thread;
    sg_client *client;
    float values[N_VARIABLES][N_ELEMS], gradients[N_VARIABLES][N_ELEMS];
    sg_op *ops[N_VARIABLES][2]; /* of the step before; NULL: none */
    uint64_t n_done;
    sg_status status;
    sg_error error;
} trainer;

/* Whole numbers, another one for every worker, step and variable. */
static float gradient_of(uint32_t worker, uint64_t step, uint32_t variable)
{
    return (float)(2 * (1 + worker + step % 7 + 3 * variable));
}

static sg_status op_end(trainer *t, sg_op **op)
{
    if (*op == NULL)
        return SG_OK;
    const sg_status status = sg_op_wait(*op, UINT64_MAX, &t->error);
    sg_op_destroy(*op);
    *op = NULL;
    return status;
}

/* The forward pass reads the variables in their order: each is waited for when it is its turn. */
static sg_status forward(trainer *t)
{
    sg_status status = SG_OK;
    for (uint32_t i = 0; i < 2 * N_VARIABLES; i++) {
        const sg_status one = op_end(t, &t->ops[i / 2][i % 2]);
        status = status == SG_OK ? one : status;
    }
    return status;
}

/* The first slice while the rest is made. */
static sg_status make_and_send_parts(trainer *t, const sg_step *step, uint32_t variable)
{
    const sg_range parts[] = {{variable, 0, 16}, {variable, 16, N_ELEMS - 16}};
    sg_status status = SG_OK;
    for (uint32_t i = 0; i < 2 && status == SG_OK; i++) {
        for (uint64_t k = 0; k < parts[i].n_elems; k++)
            t->gradients[variable][parts[i].first_elem + k] = gradient_of(t->index, step->number, variable);
        status = sg_client_push_pull_ranges(t->client, step, &parts[i], 1, &t->ops[variable][i], &t->error);
    }
    return status;
}

/* The backward pass makes the gradients from the last to the first, and sends each at once. */
static sg_status backward(trainer *t, sg_step *step)
{
    sg_status status = SG_OK;
    for (uint32_t i = N_VARIABLES; i-- > 0 && status == SG_OK;) {
        if (t->in_parts) {
            status = make_and_send_parts(t, step, i);
            continue;
        }
        for (uint32_t k = 0; k < N_ELEMS; k++)
            t->gradients[i][k] = gradient_of(t->index, step->number, i);
        if (t->in_pieces)
            status = sg_client_push_pull(t->client, step, &i, 1, &t->ops[i][0], &t->error);
    }
    return status == SG_OK && !t->in_pieces && !t->in_parts ? sg_client_end_step(t->client, step, &t->error) : status;
}

static void train(trainer *t)
{
    sg_step step = {.examples = 1, .loss = 1, .values_later = t->values_later};
    while (t->status == SG_OK) {
        t->status = sg_client_begin_step(t->client, &step, &t->error);
        if (t->status == SG_OK && step.number < N_STEPS)
            t->status = forward(t);
        if (t->status != SG_OK || step.number >= N_STEPS)
            break;
        t->status = backward(t, &step);
        t->n_done++;
    }
    const sg_status status = forward(t);
    t->status = t->status == SG_OK ? status : t->status;
}

static void *trainer_run(void *user)
{
    trainer *t = user;
    sg_variable variables[N_VARIABLES];
    char names[N_VARIABLES][8];
    for (uint32_t i = 0; i < N_VARIABLES; i++) {
        snprintf(names[i], sizeof names[i], "v%u", i);
        variables[i] = (sg_variable){
            .name = names[i], .rank = 1, .shape = {N_ELEMS}, .value = t->values[i], .gradient = t->gradients[i]};
    }
    t->client = cluster_open(t->of, t->index);
    t->status = sg_client_declare(t->client, variables, N_VARIABLES, &t->error);
    train(t);
    sg_client_close(t->client);
    return NULL;
}

/* Two workers, in every combination of the ways to go about it. */
static void run(uint32_t n_ps, const char *mode, void (*check)(const trainer pair[2]))
{
    for (uint32_t way = 0; way < 16; way++) {
        const char *const settings[] = {"workers=2", mode, NULL};
        cluster c;
        cluster_start(&c, n_ps, settings);
        trainer *pair = sg_xcalloc(2, sizeof *pair);
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t own = i == 0 ? way % 4 : way / 4; /* whole; in pieces; the same, values later; in parts */
            pair[i] = (trainer){.of = &c,
                                .index = i,
                                .in_pieces = own == 1 || own == 2,
                                .in_parts = own == 3,
                                .values_later = own >= 2};
            cr_assert_eq(pthread_create(&pair[i].thread, NULL, trainer_run, &pair[i]), 0);
        }
        for (uint32_t i = 0; i < 2; i++)
            pthread_join(pair[i].thread, NULL);
        for (uint32_t i = 0; i < 2; i++)
            cr_assert_eq(pair[i].status, SG_OK, "way %u, worker %u: %s", way, i, pair[i].error.message);
        check(pair);
        free(pair);
        cluster_await(&c, SG_OK);
    }
}

static void check_sync(const trainer pair[2])
{
    for (uint32_t i = 0; i < N_VARIABLES; i++) {
        float want = 0;
        for (uint64_t step = 0; step < N_STEPS; step++)
            want -= (gradient_of(0, step, i) + gradient_of(1, step, i)) / 2;
        for (uint32_t k = 0; k < N_ELEMS; k++)
            for (uint32_t w = 0; w < 2; w++)
                cr_assert_eq(pair[w].values[i][k], want, "worker %u, variable %u, element %u: %g, wanted %g", w, i, k,
                             (double)pair[w].values[i][k], (double)want);
    }
    cr_assert_eq(pair[0].n_done, N_STEPS);
    cr_assert_eq(pair[1].n_done, N_STEPS);
}

Test(overlap, sync_sums_are_the_same_however_steps_are_sent)
{
    run(1, "update.mode=sync", check_sync);
    run(3, "update.mode=sync", check_sync);
}

/* Every ticket is one batch and was pushed once, by one of the two; who pulled last has seen some of them. */
static void check_async(const trainer pair[2])
{
    cr_assert_eq(pair[0].n_done + pair[1].n_done, N_STEPS);
    for (uint32_t i = 0; i < N_VARIABLES; i++)
        for (uint32_t w = 0; w < 2; w++)
            cr_assert(pair[w].n_done == 0 || pair[w].values[i][0] < 0, "worker %u has seen no update", w);
}

Test(overlap, async_every_batch_is_pushed_once_however_steps_are_sent)
{
    run(1, "update.mode=async", check_async);
    run(2, "update.mode=async", check_async);
}
