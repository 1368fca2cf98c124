/* Whole clusters in one process: real ps, real clients, real sockets. Gradients are small whole numbers and weights
 * powers of two, so that sums are exact and can be compared as such. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "common/clock.h"
#include "common/status.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"
#include "tests/support/scarcity.h"

#define N_A 100 /* seven slices */
#define N_B 6

TestSuite(cluster, .timeout = 60);

static const char *const three_workers[] = {"workers=3", NULL};

/* A worker on a thread of its own. Its gradient is made by `gradient`; it ends before step `n_steps`. */
typedef struct worker {
    const cluster *of;
    uint32_t index;
    uint64_t n_steps;
    uint64_t leave_after; /* steps of its own; 0: never early */
    uint64_t examples;
    void (*gradient)(struct worker *w, const sg_step *step);
    pthread_t thread;
    float a[N_A], b[N_B], a_gradient[N_A], b_gradient[N_B];
    uint64_t first_step, n_done;
    uint32_t first_size;
    sg_status status;
    sg_error error;
} worker;

static sg_status declare(worker *w, sg_client *client)
{
    const sg_variable variables[] = {
        {.name = "a", .rank = 2, .shape = {10, N_A / 10}, .value = w->a, .gradient = w->a_gradient},
        {.name = "b", .rank = 1, .shape = {N_B}, .value = w->b, .gradient = w->b_gradient},
    };
    return sg_client_declare(client, variables, 2, &w->error);
}

static sg_status train(worker *w, sg_client *client)
{
    sg_step step = {0};
    for (;;) {
        sg_status status = sg_client_begin_step(client, &step, &w->error);
        if (status != SG_OK || step.number >= w->n_steps)
            return status;
        if (w->n_done == 0) {
            w->first_step = step.number;
            w->first_size = step.size;
        }
        w->gradient(w, &step);
        step.examples = w->examples;
        if ((status = sg_client_end_step(client, &step, &w->error)) != SG_OK || ++w->n_done == w->leave_after)
            return status;
    }
}

static void *worker_run(void *user)
{
    worker *w = user;
    sg_client *client = cluster_open(w->of, w->index);
    w->status = declare(w, client);
    if (w->status == SG_OK)
        w->status = train(w, client);
    sg_client_close(client);
    return NULL;
}

static void constant(worker *w, const sg_step *step)
{
    (void)step;
    for (size_t i = 0; i < N_A; i++)
        w->a_gradient[i] = 1;
    for (size_t i = 0; i < N_B; i++)
        w->b_gradient[i] = 2;
}

static void worker_init(worker *w, const cluster *c, uint32_t index, uint64_t n_steps)
{
    *w = (worker){.of = c, .index = index, .n_steps = n_steps, .examples = 1, .gradient = constant};
    for (size_t i = 0; i < N_A; i++)
        w->a[i] = (float)i;
    for (size_t i = 0; i < N_B; i++)
        w->b[i] = -(float)i;
}

static void worker_start(worker *w)
{
    cr_assert_eq(pthread_create(&w->thread, NULL, worker_run, w), 0);
}

static void worker_await(worker *w, sg_status status)
{
    pthread_join(w->thread, NULL);
    cr_assert_eq(w->status, status, "worker %u: %s: %s", w->index, sg_status_name(w->status),
                 w->status == SG_OK ? "" : w->error.message);
}

/* --- sums ------------------------------------------------------------------------------------------------------ */

/* Worker k: k + step + a whole number by element. */
static void whole_numbers(worker *w, const sg_step *step)
{
    for (size_t i = 0; i < N_A; i++)
        w->a_gradient[i] = 4 * (float)(w->index + step->number + i % 5);
    for (size_t i = 0; i < N_B; i++)
        w->b_gradient[i] = 4 * (float)(w->index * 3);
}

Test(cluster, sync_sums_are_exact_and_weighted_by_examples)
{
    cluster c;
    worker workers[3];
    cluster_start(&c, 2, three_workers);
    for (uint32_t i = 0; i < 3; i++) {
        worker_init(&workers[i], &c, i, 10);
        workers[i].gradient = whole_numbers;
        workers[i].examples = i == 2 ? 2 : 1; /* scales 1/4, 1/4, 1/2 */
        worker_start(&workers[i]);
    }
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    for (size_t i = 0; i < N_A; i++) {
        /* sum over steps s of (0 + s + e) + (1 + s + e) + 2 (2 + s + e), e = i % 5 */
        const float want = (float)i - (10 * 5 + 4 * 45 + 4 * 10 * (float)(i % 5));
        for (int k = 0; k < 3; k++)
            cr_assert_eq(workers[k].a[i], want, "worker %d, a[%zu] = %g, wanted %g", k, i, (double)workers[k].a[i],
                         (double)want);
    }
    for (size_t i = 0; i < N_B; i++)
        cr_assert_eq(workers[1].b[i], -(float)i - 10 * (3 + 2 * 6));
    cluster_await(&c, SG_OK);
}

/* Async: a batch is a ticket's, whoever gets it. */
static void by_batch(worker *w, const sg_step *step)
{
    for (size_t i = 0; i < N_A; i++)
        w->a_gradient[i] = (float)(step->number % 7 + i % 3);
    for (size_t i = 0; i < N_B; i++)
        w->b_gradient[i] = 1;
}

/* The newest values, by a worker that comes when the others are done. */
static void read_newest(worker *reader, const cluster *c)
{
    worker_init(reader, c, 3, 0);
    worker_start(reader);
    worker_await(reader, SG_OK);
}

Test(cluster, async_every_contribution_is_applied_once)
{
    cluster c;
    worker workers[3], reader;
    const char *const settings[] = {"workers=3", "update.mode=async", "linger=true", NULL};
    cluster_start(&c, 2, settings);
    for (uint32_t i = 0; i < 3; i++) {
        worker_init(&workers[i], &c, i, 90);
        workers[i].gradient = by_batch;
        worker_start(&workers[i]);
    }
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    cr_assert_eq(workers[0].n_done + workers[1].n_done + workers[2].n_done, 90);
    read_newest(&reader, &c);
    float sum = 0;
    for (int s = 0; s < 90; s++)
        sum += (float)(s % 7);
    for (size_t i = 0; i < N_A; i++)
        cr_assert_eq(reader.a[i], (float)i - sum - 90 * (float)(i % 3), "a[%zu] = %g", i, (double)reader.a[i]);
    for (size_t i = 0; i < N_B; i++)
        cr_assert_eq(reader.b[i], -(float)i - 90);
    cluster_stop(&c);
}

/* --- order does not matter ------------------------------------------------------------------------------------- */

static void uneven_numbers(worker *w, const sg_step *step)
{
    uint64_t state = step->number * 1000 + w->index * 77 + 5;
    for (size_t i = 0; i < N_A + N_B; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float *to = i < N_A ? &w->a_gradient[i] : &w->b_gradient[i - N_A];
        *to = (float)(int32_t)(state >> 32) / 3e9f;
    }
}

static void train_uneven(uint32_t n_ps, const char *rule, const char *more, float *a)
{
    cluster c;
    worker workers[3];
    const char *const settings[] = {"workers=3", rule, "update.learning_rate=0.01", "update.weight_decay=0.001",
                                    more,        NULL};
    cluster_start(&c, n_ps, settings);
    for (uint32_t i = 0; i < 3; i++) {
        worker_init(&workers[i], &c, i, 12);
        workers[i].gradient = uneven_numbers;
        workers[i].examples = 3 + i;
        worker_start(&workers[i]);
    }
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    for (int i = 1; i < 3; i++)
        cr_assert_arr_eq(workers[i].a, workers[0].a, sizeof workers[0].a);
    memcpy(a, workers[0].a, sizeof workers[0].a);
    cluster_await(&c, SG_OK);
}

Test(cluster, sync_runs_are_equal_bit_for_bit_whatever_the_number_of_ps)
{
    float by_n[3][N_A], again[N_A];
    static const struct {
        const char *rule, *more;
    } rules[] = {{"update.rule=adam", NULL},
                 {"update.rule=momentum", NULL},
                 {"update.rule=adam", "update.clip_global_norm=0.5"},
                 {"update.rule=lars", "update.clip_global_norm=0.5"},
                 {"update.rule=lamb", NULL},
                 {"update.rule=adam", "update.wire=bf16"}};
    for (size_t r = 0; r < SG_ARRAY_LEN(rules); r++) {
        for (uint32_t n = 1; n <= 3; n++)
            train_uneven(n, rules[r].rule, rules[r].more, by_n[n - 1]);
        train_uneven(2, rules[r].rule, rules[r].more, again);
        cr_assert_arr_eq(by_n[1], by_n[0], sizeof again);
        cr_assert_arr_eq(by_n[2], by_n[0], sizeof again);
        cr_assert_arr_eq(again, by_n[0], sizeof again);
        cr_assert_neq(by_n[0][1], 1.0f);
    }
}

/* --- a problem with a known answer ----------------------------------------------------------------------------- */

/* Each worker sees only some of the coordinates: alone it would leave the others where they are. The loss is the mean
 * over 12 rows of (a[i] - (i + 1) / 8)^2 / 2 for coordinate i = row. */
static void least_squares(worker *w, const sg_step *step)
{
    (void)step;
    memset(w->a_gradient, 0, sizeof w->a_gradient);
    memset(w->b_gradient, 0, sizeof w->b_gradient);
    for (uint32_t row = w->index; row < 12; row += 3)
        w->a_gradient[row] = (w->a[row] - (float)(row + 1) / 8) / 4;
}

static void solve(const char *const *settings, uint64_t n_steps)
{
    cluster c;
    worker workers[3], reader;
    cluster_start(&c, 2, settings);
    for (uint32_t i = 0; i < 3; i++) {
        worker_init(&workers[i], &c, i, n_steps);
        workers[i].gradient = least_squares;
        workers[i].examples = 4;
        worker_start(&workers[i]);
    }
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    read_newest(&reader, &c);
    for (uint32_t i = 0; i < 12; i++)
        cr_assert(fabsf(reader.a[i] - (float)(i + 1) / 8) <= 1e-4f, "a[%u] = %g", i, (double)reader.a[i]);
    cluster_stop(&c);
}

Test(cluster, async_least_squares_reaches_the_known_optimum)
{
    const char *const settings[] = {"workers=3", "update.mode=async", "linger=true", NULL};
    solve(settings, 600);
}

Test(cluster, sync_least_squares_reaches_the_known_optimum)
{
    cluster c;
    worker workers[3];
    const char *const settings[] = {"workers=3", "update.learning_rate=4", NULL};
    cluster_start(&c, 2, settings);
    for (uint32_t i = 0; i < 3; i++) {
        worker_init(&workers[i], &c, i, 120);
        workers[i].gradient = least_squares;
        workers[i].examples = 4;
        worker_start(&workers[i]);
    }
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    for (uint32_t i = 0; i < 12; i++)
        cr_assert(fabsf(workers[0].a[i] - (float)(i + 1) / 8) <= 1e-4f, "a[%u] = %g", i, (double)workers[0].a[i]);
    cluster_await(&c, SG_OK);
}

/* --- coming late, leaving early -------------------------------------------------------------------------------- */

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open;
} gate;
static gate gates[2] = {{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false},
                        {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false}};

static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->open = true;
    pthread_cond_broadcast(&g->opened);
    pthread_mutex_unlock(&g->mutex);
}

static void gate_await(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    while (!g->open)
        pthread_cond_wait(&g->opened, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

/* Worker 0 says when step 5 is reached, and holds step 8 until the joiner has declared. */
static void constant_with_gates(worker *w, const sg_step *step)
{
    constant(w, step);
    if (w->index == 0 && step->number == 5)
        gate_open(&gates[0]);
    if (w->index == 0 && step->number == 8)
        gate_await(&gates[1]);
}

static void *declare_and_tell(void *user)
{
    worker *w = user;
    sg_client *client = cluster_open(w->of, w->index);
    w->status = declare(w, client);
    gate_open(&gates[1]);
    if (w->status == SG_OK)
        w->status = train(w, client);
    sg_client_close(client);
    return NULL;
}

Test(cluster, a_late_joiner_starts_at_a_later_step_on_that_steps_values)
{
    cluster c;
    worker workers[3];
    const char *const settings[] = {"workers=2", NULL};
    cluster_start(&c, 2, settings);
    for (uint32_t i = 0; i < 3; i++) {
        worker_init(&workers[i], &c, i, 60);
        workers[i].gradient = constant_with_gates;
    }
    worker_start(&workers[0]);
    worker_start(&workers[1]);
    gate_await(&gates[0]);
    cr_assert_eq(pthread_create(&workers[2].thread, NULL, declare_and_tell, &workers[2]), 0);
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    cr_assert_geq(workers[2].first_step, 6);
    cr_assert_eq(workers[2].first_size, 3);
    cr_assert_eq(workers[2].first_step + workers[2].n_done, 60);
    for (size_t i = 0; i < N_A; i++)
        for (int k = 0; k < 3; k++)
            cr_assert_eq(workers[k].a[i], (float)i - 60);
    cluster_await(&c, SG_OK);
}

Test(cluster, a_worker_whose_data_ends_early_leaves_and_the_others_go_on)
{
    cluster c;
    worker workers[3];
    cluster_start(&c, 2, three_workers);
    for (uint32_t i = 0; i < 3; i++)
        worker_init(&workers[i], &c, i, 40);
    workers[1].leave_after = 7;
    workers[2].leave_after = 25;
    for (int i = 0; i < 3; i++)
        worker_start(&workers[i]);
    for (int i = 0; i < 3; i++)
        worker_await(&workers[i], SG_OK);
    cr_assert_eq(workers[0].n_done, 40);
    for (size_t i = 0; i < N_A; i++) {
        cr_assert_eq(workers[0].a[i], (float)i - 40);
        cr_assert_eq(workers[1].a[i], (float)i - 7);
    }
    cluster_await(&c, SG_OK);
}

/* --- what goes wrong ------------------------------------------------------------------------------------------- */

static void not_a_number_at_step_3(worker *w, const sg_step *step)
{
    constant(w, step);
    for (size_t i = 0; i < N_A; i++)
        w->a_gradient[i] = w->index == 1 ? 3 : 1;
    if (w->index == 1 && step->number == 3)
        w->b_gradient[2] = NAN;
}

Test(cluster, a_gradient_with_a_nan_is_left_out_of_its_step_everywhere)
{
    cluster c;
    worker workers[2];
    const char *const settings[] = {"workers=2", NULL};
    cluster_start(&c, 2, settings);
    for (uint32_t i = 0; i < 2; i++) {
        worker_init(&workers[i], &c, i, 6);
        workers[i].gradient = not_a_number_at_step_3;
        worker_start(&workers[i]);
    }
    for (int i = 0; i < 2; i++)
        worker_await(&workers[i], SG_OK);
    for (size_t i = 0; i < N_A; i++)
        cr_assert_eq(workers[0].a[i], (float)i - (5 * 2 + 1)); /* five steps of mean 2, one of worker 0's 1 alone */
    for (size_t i = 0; i < N_B; i++)
        cr_assert_eq(workers[0].b[i], -(float)i - 12);
    cluster_await(&c, SG_OK);
}

Test(cluster, variables_that_differ_are_refused_by_name)
{
    cluster c;
    const char *const settings[] = {"workers=2", NULL};
    cluster_start(&c, 2, settings);
    worker good, bad;
    worker_init(&good, &c, 0, 1);
    worker_init(&bad, &c, 1, 1);
    sg_client *first = cluster_open(&c, 0), *second = cluster_open(&c, 1);
    cr_assert_eq(declare(&good, first), SG_OK);
    sg_variable variables[] = {
        {.name = "a", .rank = 2, .shape = {10, N_A / 10}, .value = bad.a, .gradient = bad.a_gradient},
        {.name = "b", .rank = 2, .shape = {2, 3}, .value = bad.b, .gradient = bad.b_gradient},
    };
    sg_error err;
    cr_assert_eq(sg_client_declare(second, variables, 2, &err), SG_MISMATCH, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "'b'"), "%s", err.message);
    const sg_variable other_order[] = {variables[1], variables[0]};
    cr_assert_eq(sg_client_declare(second, other_order, 2, &err), SG_MISMATCH, "%s", err.message);
    cr_assert_eq(sg_client_declare(second, variables, 1, &err), SG_MISMATCH, "%s", err.message);
    cr_assert_eq(declare(&bad, second), SG_OK);
    cr_assert_eq(bad.a[7], 7);
    sg_client_close(first);
    sg_client_close(second);
    cluster_await(&c, SG_OK);
}

Test(cluster, another_jobs_name_or_an_index_out_of_range_is_refused)
{
    cluster c;
    const char *const settings[] = {"workers=1", "max_workers=4", NULL};
    cluster_start(&c, 1, settings);
    sg_client *client = NULL;
    sg_error err;
    cr_assert_eq(cluster_try_open(&c, (sg_client_options){.job = "other"}, &client, &err), SG_MISMATCH, "%s",
                 err.message);
    cr_assert_not_null(strstr(err.message, "other"), "%s", err.message);
    cr_assert_neq(cluster_try_open(&c, (sg_client_options){.worker = 4}, &client, &err), SG_OK);
    cr_assert_not_null(strstr(err.message, "4"), "%s", err.message);
    cr_assert_null(client);
    cluster_stop(&c);
}

static void raw_declare(cluster_raw *raw, sg_status *status, sg_error *err)
{
    uint64_t shape_a[] = {10, N_A / 10}, shape_b[] = {N_B};
    Shardgrad__V1__Variable a = SHARDGRAD__V1__VARIABLE__INIT, b = SHARDGRAD__V1__VARIABLE__INIT;
    a.name = (char *)"a", a.shape = shape_a, a.n_shape = 2;
    b.name = (char *)"b", b.shape = shape_b, b.n_shape = 1;
    Shardgrad__V1__Variable *list[] = {&a, &b};
    Shardgrad__V1__DeclareRequest request = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    request.incarnation = raw->incarnation;
    request.generation = 1;
    request.variables = list;
    request.n_variables = 2;
    do
        *status = cluster_raw_call(raw, "/shardgrad.v1.CoordinatorService/Declare", &request.base,
                                   &shardgrad__v1__declare_response__descriptor, 5000, NULL, err);
    while (*status == SG_WAITING);
}

Test(cluster, values_that_nobody_initializes_are_waited_for_and_then_a_typed_error)
{
    cluster c;
    const char *const settings[] = {"workers=2", "lease_ms=60000", NULL};
    cluster_start(&c, 1, settings);
    cluster_raw mute;
    sg_error err;
    sg_status status;
    cluster_raw_join(&mute, &c, 0);
    raw_declare(&mute, &status, &err); /* it is to initialize, and never does */
    cr_assert_eq(status, SG_OK, "%s", err.message);

    uint32_t slice = 0;
    uint64_t version = 0;
    Shardgrad__V1__PullRequest pull = SHARDGRAD__V1__PULL_REQUEST__INIT;
    pull.incarnation = mute.incarnation;
    pull.generation = 1;
    pull.slices = &slice, pull.n_slices = 1;
    pull.versions = &version, pull.n_versions = 1;
    status = cluster_raw_call(&mute, "/shardgrad.v1.ParameterService/Pull", &pull.base,
                              &shardgrad__v1__pull_response__descriptor, 5000, NULL, &err);
    cr_assert_eq(status, SG_WAITING, "%s: %s", sg_status_name(status), err.message);
    cr_assert_not_null(strstr(err.message, "initial values"), "%s", err.message);

    sg_client *client = NULL;
    cr_assert_eq(cluster_try_open(&c, (sg_client_options){.worker = 1, .start_timeout_ms = 1000}, &client, &err), SG_OK,
                 "%s", err.message);
    worker w;
    worker_init(&w, &c, 1, 1);
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(declare(&w, client), SG_TIMEOUT, "%s", w.error.message);
    cr_assert(sg_clock_ms() - begun_ms >= 1000 && sg_clock_ms() - begun_ms < 3000);
    cr_assert_not_null(strstr(w.error.message, "worker 0"), "%s", w.error.message);
    sg_client_close(client);
    cluster_raw_leave_silently(&mute);
    cluster_stop(&c);
}

static void raw_ticket(cluster_raw *raw)
{
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = raw->incarnation;
    request.generation = 1;
    sg_status status;
    sg_error err;
    do
        status = cluster_raw_call(raw, "/shardgrad.v1.CoordinatorService/Ticket", &request.base,
                                  &shardgrad__v1__ticket_response__descriptor, 5000, NULL, &err);
    while (status == SG_WAITING);
    cr_assert_eq(status, SG_OK, "%s", err.message);
}

Test(cluster, a_worker_that_dies_ends_the_others_with_its_name)
{
    cluster c;
    worker survivor;
    const char *const settings[] = {"workers=2", "lease_ms=1000", "on_worker_loss=abort", NULL};
    cluster_start(&c, 2, settings);
    worker_init(&survivor, &c, 0, 1000);
    /* It declares first, and so initializes. */
    cr_assert_eq(pthread_create(&survivor.thread, NULL, declare_and_tell, &survivor), 0);
    gate_await(&gates[1]);
    cluster_raw mute;
    sg_error err;
    sg_status status;
    cluster_raw_join(&mute, &c, 1);
    raw_declare(&mute, &status, &err);
    cr_assert_eq(status, SG_OK, "%s", err.message);
    raw_ticket(&mute);
    const uint64_t begun_ms = sg_clock_ms();
    worker_await(&survivor, SG_PEER_LOST);
    cr_assert_not_null(strstr(survivor.error.message, "worker 1"), "%s", survivor.error.message);
    cr_assert_lt(sg_clock_ms() - begun_ms, 5000);
    cluster_raw_leave_silently(&mute);
    cluster_await(&c, SG_PEER_LOST);
}

/* Two clients whose first step has begun; the second one then does nothing. */
typedef struct pair {
    cluster c;
    worker workers[2];
    sg_client *clients[2];
    sg_step steps[2];
} pair;

static void *pair_begin(void *user)
{
    pair *p = user;
    SG_ASSERT(sg_client_begin_step(p->clients[1], &p->steps[1], NULL) == SG_OK);
    return NULL;
}

static void pair_init(pair *p)
{
    const char *const settings[] = {"workers=2", NULL};
    *p = (pair){0};
    cluster_start(&p->c, 2, settings);
    for (uint32_t i = 0; i < 2; i++) {
        worker_init(&p->workers[i], &p->c, i, 10);
        constant(&p->workers[i], NULL);
        p->clients[i] = cluster_open(&p->c, i);
        cr_assert_eq(declare(&p->workers[i], p->clients[i]), SG_OK);
    }
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, pair_begin, p), 0);
    cr_assert_eq(sg_client_begin_step(p->clients[0], &p->steps[0], NULL), SG_OK);
    pthread_join(thread, NULL);
    p->steps[0].examples = p->steps[1].examples = 1;
}

static void pair_deinit(pair *p)
{
    sg_client_close(p->clients[0]);
    sg_client_close(p->clients[1]);
    cluster_await(&p->c, SG_OK);
}

static void *pair_end(void *user)
{
    pair *p = user;
    p->workers[0].status = sg_client_end_step(p->clients[0], &p->steps[0], &p->workers[0].error);
    return NULL;
}

Test(cluster, an_interrupt_ends_a_step_that_waits_for_another_worker)
{
    pair p;
    pair_init(&p);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, pair_end, &p), 0);
    sg_client_info info = {0};
    while (info.pushed_bytes < (N_A + N_B) * sizeof(float))
        sg_client_get_info(p.clients[0], &info);
    sg_client_interrupt(p.clients[0]);
    pthread_join(thread, NULL);
    cr_assert_eq(p.workers[0].status, SG_CANCELLED);
    pair_deinit(&p);
}

Test(cluster, an_op_that_timed_out_goes_on_and_says_for_whom_it_waits)
{
    pair p;
    pair_init(&p);
    const uint32_t all[] = {0, 1};
    sg_op *push, *pull, *last;
    sg_error err;
    cr_assert_eq(sg_client_push(p.clients[0], &p.steps[0], all, 2, &push, NULL), SG_OK);
    cr_assert_eq(sg_client_pull(p.clients[0], &p.steps[0], all, 2, &pull, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(push, UINT64_MAX, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(pull, 0, NULL), SG_TIMEOUT);
    do /* parked calls are answered in words every 200 ms */
        cr_assert_eq(sg_op_wait(pull, 50, &err), SG_TIMEOUT);
    while (strstr(err.message, "worker 1") == NULL);
    cr_assert_eq(p.workers[0].a[3], 3, "values came though worker 1 has pushed nothing");
    cr_assert_eq(sg_client_push(p.clients[1], &p.steps[1], all, 2, &last, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(pull, UINT64_MAX, NULL), SG_OK);
    cr_assert_eq(p.workers[0].a[3], 2);
    sg_op_destroy(push);
    sg_op_destroy(pull);
    sg_op_destroy(last);
    pair_deinit(&p);
}

Test(cluster, a_second_life_of_a_worker_fences_the_first)
{
    pair p;
    pair_init(&p);
    sg_client *again = cluster_open(&p.c, 1);
    sg_error err;
    cr_assert_eq(sg_client_end_step(p.clients[1], &p.steps[1], &err), SG_FENCED, "%s", err.message);
    cr_assert_eq(sg_client_begin_step(p.clients[1], &p.steps[1], NULL), SG_FENCED);
    sg_client_close(again);
    sg_client_close(p.clients[0]);
    sg_client_close(p.clients[1]);
    cluster_stop(&p.c);
}

Test(cluster, a_client_for_which_the_system_has_no_thread_is_refused)
{
    static const char *const settings[] = {"workers=8", NULL};
    cluster c;
    cluster_start(&c, 1, settings);
    sg_client *client = NULL;
    sg_error err;
    uint32_t n = 0;
    for (sg_status status = SG_EXHAUSTED; status != SG_OK; n++) {
        cr_assert_lt(n, 8);
        sg_scarcity_allow((int)n); /* one that fails late has joined: each has an index of its own */
        status = cluster_try_open(&c, (sg_client_options){.worker = n}, &client, &err);
        cr_assert(status == SG_OK || status == SG_EXHAUSTED, "%s: %s", sg_status_name(status), err.message);
    }
    sg_scarcity_allow(-1);
    cr_assert_gt(n, 4, "it needs a loop, a way to wake it, and threads");
    sg_client_close(client);
    cluster_stop(&c);
}
