/* tests/cluster/test_faults.c - real ps and real clients on a network at its worst: connections are cut between apply
 * and reply, answers are lost, late, cut off in the middle, and requests are delivered twice. What comes out is what
 * would have come out without.
 *
 * SG_TEST_CUTS=N in the environment: until so many connections were cut (default 60). */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "common/random.h"
#include "common/status.h"
#include "tests/support/seed.h"

#define N_VALUES  200 /* 13 slices */
#define N_WORKERS 2

TestSuite(faults, .timeout = 550);

typedef struct run {
    cluster cluster;
    sg_rpc_faults *faults;
    bool whole; /* gradients are small whole numbers */
    uint64_t wanted_cuts;
    atomic_uint_least64_t end; /* steps are below it */
    struct trainee {
        struct run *of;
        uint32_t index;
        uint64_t n_done;
        float values[N_VALUES], gradient[N_VALUES];
        pthread_t thread;
        sg_status status;
        sg_error error;
    } workers[N_WORKERS];
} run;

static uint64_t cuts(const run *r)
{
    if (r->faults == NULL)
        return 0;
    return sg_rpc_faults_count(r->faults, SG_RPC_FAULT_CUT) + sg_rpc_faults_count(r->faults, SG_RPC_FAULT_BREAK);
}

/* A function of worker and number alone. */
static void gradient_fill(struct trainee *w, uint64_t number)
{
    uint32_t words[4];
    for (size_t i = 0; i < N_VALUES; i++) {
        sg_random_block(w->index, number, i, words);
        w->gradient[i] = w->of->whole ? (float)(words[0] % 7) - 3 : (float)words[0] / 4294967296.0f - 0.5f;
    }
}

/* Once enough was cut, the end is set where no worker has come yet: in sync mode they are one step apart at most. */
static bool is_over(struct trainee *w, const sg_step *step)
{
    run *r = w->of;
    if (w->index == 0 && atomic_load(&r->end) == UINT64_MAX && cuts(r) >= r->wanted_cuts)
        atomic_store(&r->end, step->number + 3);
    return step->number >= atomic_load(&r->end);
}

static sg_status train(struct trainee *w, sg_client *client)
{
    sg_step step = {0};
    for (;; w->n_done++) {
        sg_status status = sg_client_begin_step(client, &step, &w->error);
        if (status != SG_OK || is_over(w, &step))
            return status;
        gradient_fill(w, w->of->whole ? w->n_done : step.number);
        step.examples = w->index + 1;
        if ((status = sg_client_end_step(client, &step, &w->error)) != SG_OK)
            return status;
    }
}

/* The sum of what everybody pushed: the other one has gone. */
static sg_status look_at_all(struct trainee *w, sg_client *client)
{
    pthread_join(w->of->workers[1].thread, NULL);
    sg_op *op;
    const uint32_t variable = 0;
    sg_status status = sg_client_pull(client, &(sg_step){0}, &variable, 1, &op, &w->error);
    if (status != SG_OK)
        return status;
    status = sg_op_wait(op, UINT64_MAX, &w->error);
    sg_op_destroy(op);
    return status;
}

static void *worker_run(void *user)
{
    struct trainee *w = user;
    sg_client *client = cluster_open(&w->of->cluster, w->index);
    const sg_variable variable = {
        .name = "v", .rank = 1, .shape = {N_VALUES}, .value = w->values, .gradient = w->gradient};
    w->status = sg_client_declare(client, &variable, 1, &w->error);
    if (w->status == SG_OK)
        w->status = train(w, client);
    if (w->status == SG_OK && w->of->whole && w->index == 0)
        w->status = look_at_all(w, client);
    sg_client_close(client);
    return NULL;
}

/* faults NULL: n_steps without any; else until enough connections were cut. */
static void run_all(run *r, const char *const *settings, bool whole, sg_rpc_faults *faults, uint64_t n_steps)
{
    memset(r, 0, sizeof *r);
    const char *cuts_wanted = getenv("SG_TEST_CUTS");
    r->whole = whole;
    r->faults = faults;
    r->wanted_cuts = cuts_wanted != NULL ? strtoull(cuts_wanted, NULL, 10) : 60;
    atomic_init(&r->end, faults != NULL ? UINT64_MAX : n_steps);
    cluster_start_faulty(&r->cluster, 2, settings, faults);
    for (uint32_t i = N_WORKERS; i-- > 0;) { /* worker 0 waits for the others */
        r->workers[i].of = r;
        r->workers[i].index = i;
        for (size_t k = 0; k < N_VALUES; k++)
            r->workers[i].values[k] = whole ? 0 : (float)k / 7;
        cr_assert_eq(pthread_create(&r->workers[i].thread, NULL, worker_run, &r->workers[i]), 0);
    }
    for (uint32_t i = 0; i < (whole ? 1u : N_WORKERS); i++)
        pthread_join(r->workers[i].thread, NULL);
    cluster_stop(&r->cluster);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        cr_assert_eq(r->workers[i].status, SG_OK, "worker %u: %s: %s", i, sg_status_name(r->workers[i].status),
                     r->workers[i].error.message);
}

static void faults_begin(sg_rpc_faults *faults, const sg_seed *seed)
{
    sg_rpc_faults_init(faults, seed->first);
    faults->per_million[SG_RPC_FAULT_CUT] = 20000;
    faults->per_million[SG_RPC_FAULT_BREAK] = 10000;
    faults->per_million[SG_RPC_FAULT_DROP] = 30000;
    faults->per_million[SG_RPC_FAULT_REPEAT] = 100000;
    faults->per_million[SG_RPC_FAULT_DELAY] = 100000;
}

static void check_that_all_happened(sg_rpc_faults *faults)
{
    for (int fault = 0; fault < SG_RPC_FAULTS; fault++)
        cr_assert_gt(sg_rpc_faults_count(faults, (sg_rpc_fault)fault), 0, "fault %d never happened", fault);
}

Test(faults, sync_values_are_bit_for_bit_those_of_an_undisturbed_run)
{
    static const char *const settings[] = {"workers=2", "update.rule=adam", "update.learning_rate=0.01", NULL};
    static run disturbed, undisturbed;
    sg_seed seed = sg_seed_begin();
    sg_rpc_faults faults;
    faults_begin(&faults, &seed);
    run_all(&disturbed, settings, false, &faults, 0);
    check_that_all_happened(&faults);
    uint64_t n_steps = atomic_load(&disturbed.end);
    run_all(&undisturbed, settings, false, NULL, n_steps);
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        cr_assert_eq(disturbed.workers[i].n_done, n_steps, "seed %llu", (unsigned long long)seed.first);
        cr_assert_arr_eq(disturbed.workers[i].values, undisturbed.workers[0].values, sizeof(float[N_VALUES]),
                         "worker %u after %llu steps, seed %llu", i, (unsigned long long)n_steps,
                         (unsigned long long)seed.first);
    }
}

Test(faults, async_every_push_counts_exactly_once)
{
    static const char *const settings[] = {"workers=2", "update.mode=async", NULL};
    static run disturbed;
    static float wanted[N_VALUES];
    sg_seed seed = sg_seed_begin();
    sg_rpc_faults faults;
    faults_begin(&faults, &seed);
    run_all(&disturbed, settings, true, &faults, 0);
    check_that_all_happened(&faults);
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        for (uint64_t number = 0; number < disturbed.workers[i].n_done; number++) {
            gradient_fill(&disturbed.workers[i], number);
            for (size_t k = 0; k < N_VALUES; k++)
                wanted[k] -= disturbed.workers[i].gradient[k];
        }
        cr_assert_gt(disturbed.workers[i].n_done, 0);
    }
    cr_assert_arr_eq(disturbed.workers[0].values, wanted, sizeof wanted, "seed %llu", (unsigned long long)seed.first);
}
