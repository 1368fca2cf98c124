/* In the steady state the store allocates nothing and a contribution is nowhere twice. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "server/store_internal.h"
#include "store_fixture.h"
#include "tests/support/allocations.h"

TestSuite(store_memory, .timeout = 60);

#define N_WORKERS 20u /* more than fit on the stack of the one that closes */
#define N_SLICES  24u
#define N_WARM    6u
#define N_STEPS   20u

/* Slices of 16 elements. Everything that a push needs, made beforehand. */
static const fixture_variable variables[] = {{.name = "weight", .n_elems = 16 * N_SLICES}};

typedef struct driver {
    fixture f;
    sg_mode mode;
    sg_span spans[7];
    float values[16 * N_SLICES];
    uint32_t slices[N_SLICES];
    uint64_t numbers[N_SLICES];
    uint64_t mark;     /* of a checkpoint, in the tickets */
    uint64_t n_values; /* that came back */
    size_t n_lost;
} driver;

static void ignore(void *owner)
{
    (void)owner;
}

static void take_answer(void *user, void *call, const sg_store_pull_answer *answer)
{
    (void)user;
    driver *d = call;
    d->n_lost += answer->status != SG_OK;
    for (size_t i = 0; i < answer->n; i++)
        sg_version_release(answer->versions[i]);
    d->n_values += answer->n;
}

static void driver_init(driver *d, const sg_store_options *given)
{
    *d = (driver){.mode = given->mode};
    sg_store_options options = *given;
    options.answer_pull = take_answer;
    options.max_workers = 32;
    d->f = (fixture){.now_ms = 1000000, .slice_bytes = FIXTURE_SLICE_BYTES};
    d->f.store = sg_store_create(&options);
    sg_store_set_life(d->f.store, FIXTURE_LIFE);
    fixture_start(&d->f, variables, 1, N_WORKERS, 0.5f);
    for (uint32_t i = 0; i < N_SLICES; i++)
        d->slices[i] = i;
    for (size_t i = 0; i < SG_ARRAY_LEN(d->values); i++)
        d->values[i] = (float)(i % 7);
    size_t at = 0, n_bytes = sizeof d->values, n_spans = SG_ARRAY_LEN(d->spans);
    for (size_t i = 0; i < n_spans; i++) {
        size_t end = (i + 1) * n_bytes / n_spans;
        d->spans[i] = (sg_span){(const uint8_t *)d->values + at, end - at};
        at = end;
    }
}

static void driver_push(driver *d, uint32_t worker, uint64_t step, uint32_t n_workers)
{
    bool async = d->mode == SG_MODE_ASYNC;
    uint64_t members = async ? UINT64_C(1) << worker : (UINT64_C(1) << n_workers) - 1;
    Shardgrad__V1__Step message = SHARDGRAD__V1__STEP__INIT;
    message.iteration = step;
    message.members = (ProtobufCBinaryData){.len = sizeof members, .data = (uint8_t *)&members};
    message.hyper = 1;
    message.checkpoint_mark = d->mark;
    message.learning_rate = 0.1f;
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = worker;
    request.incarnation = FIXTURE_INCARNATION(worker + 1);
    request.generation = 1;
    request.step = &message;
    request.weight = 1 + worker;
    request.n_slices = request.n_steps = N_SLICES;
    request.slices = d->slices;
    request.steps = d->numbers;
    for (uint32_t i = 0; i < N_SLICES; i++)
        d->numbers[i] = async ? step * n_workers + worker : step;
    sg_store_data data = {.spans = d->spans,
                          .n_spans = SG_ARRAY_LEN(d->spans),
                          .kept_bytes = sizeof d->values,
                          .owner = d,
                          .keep = ignore,
                          .release = ignore};
    sg_store_pushed pushed = {.wants_versions = true};
    sg_error err;
    d->n_lost += sg_store_push(d->f.store, d->f.now_ms, &request, &data, &pushed, &err) != SG_OK;
    for (size_t i = 0; i < pushed.n_versions; i++)
        sg_version_release(pushed.versions[i]);
    d->n_values += pushed.n_versions;
    sg_store_pushed_deinit(&pushed);
}

static void driver_pull(driver *d, uint32_t worker, uint64_t version)
{
    for (uint32_t i = 0; i < N_SLICES; i++)
        d->numbers[i] = version;
    Shardgrad__V1__PullRequest request = SHARDGRAD__V1__PULL_REQUEST__INIT;
    request.worker = worker;
    request.incarnation = FIXTURE_INCARNATION(worker + 1);
    request.generation = 1;
    request.n_slices = request.n_versions = N_SLICES;
    request.slices = d->slices;
    request.versions = d->numbers;
    sg_store_pull(d->f.store, d->f.now_ms, d->f.now_ms + 60000, &request, d);
}

/* All push; one pulls before the last push, and waits, one afterwards. */
static void driver_step(driver *d, uint64_t step, uint32_t n_workers)
{
    for (uint32_t worker = 0; worker < n_workers; worker++) {
        if (worker + 1 == n_workers)
            driver_pull(d, 0, step + 1);
        driver_push(d, worker, step, n_workers);
    }
    driver_pull(d, 0, step + 1);
    sg_store_tick(d->f.store, d->f.now_ms);
}

static void expect_no_allocation(const sg_store_options *options, uint32_t n_workers)
{
    driver d;
    char report[4096];
    driver_init(&d, options);
    uint64_t step = 0;
    while (step < N_WARM)
        driver_step(&d, step++, n_workers);
    d.n_values = 0;
    sg_allocations_begin();
    while (step < N_WARM + N_STEPS)
        driver_step(&d, step++, n_workers);
    size_t n = sg_allocations_end(report, sizeof report);
    cr_assert_eq(n, 0, "%zu allocations, mode %d, rule %d, %u workers, held_bytes %lu:\n%s", n, (int)options->mode,
                 (int)options->rule, n_workers, (unsigned long)options->held_bytes, report);
    cr_assert_eq(d.n_lost, 0);
    cr_assert_geq(d.n_values, N_STEPS * N_SLICES * 3, "one from the push and two from pulls");
    sg_store_fail_pulls(d.f.store, SG_STOPPED, "stopped");
    sg_store_destroy(d.f.store);
}

Test(store_memory, a_step_allocates_nothing_in_the_steady_state)
{
    static const uint32_t numbers[] = {1, 2, 3, N_WORKERS};
    for (int mode = 0; mode < 2; mode++) {
        for (sg_rule rule = SG_RULE_SGD; rule <= SG_RULE_ADAM; rule++) {
            for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++) {
                sg_store_options options = fixture_options(mode == 0 ? SG_MODE_SYNC : SG_MODE_ASYNC, rule);
                expect_no_allocation(&options, numbers[i]);
                options.held_bytes = 0;
                expect_no_allocation(&options, numbers[i]);
            }
        }
    }
}

/* What is kept of a slice is written down, once for each; its values and slots go into what lies ready. */
Test(store_memory, the_first_checkpoint_finds_its_memory_ready)
{
    driver d;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_ADAM);
    options.makes_checkpoints = true;
    driver_init(&d, &options);
    uint64_t step = 0;
    while (step < N_WARM)
        driver_step(&d, step++, 2);
    char report[4096];
    sg_allocations_begin();
    d.mark = 1;
    driver_step(&d, step++, 2);
    driver_step(&d, step++, 2);
    size_t n = sg_allocations_end(report, sizeof report);
    cr_assert_eq(n, N_SLICES, "%zu allocations, want one for each of %u slices:\n%s", n, N_SLICES, report);
    sg_store_fail_pulls(d.f.store, SG_STOPPED, "stopped");
    sg_store_destroy(d.f.store);
}

enum { N_CLAIMED = 100000 };

Test(store_memory, a_push_or_pull_of_who_is_not_let_in_costs_nothing)
{
    driver d;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    driver_init(&d, &options);
    static uint32_t slices[N_CLAIMED];
    static uint64_t numbers[N_CLAIMED];
    uint64_t members = 1;
    Shardgrad__V1__Step step = SHARDGRAD__V1__STEP__INIT;
    step.members = (ProtobufCBinaryData){.len = sizeof members, .data = (uint8_t *)&members};
    step.hyper = 1;
    Shardgrad__V1__PushRequest push = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    push.incarnation = FIXTURE_INCARNATION(99);
    push.generation = 1;
    push.step = &step;
    push.n_slices = push.n_steps = N_CLAIMED;
    push.slices = slices;
    push.steps = numbers;
    sg_store_data data = {.spans = d.spans, .n_spans = SG_ARRAY_LEN(d.spans), .kept_bytes = sizeof d.values};
    sg_store_pushed pushed = {.wants_versions = true};
    Shardgrad__V1__PullRequest pull = SHARDGRAD__V1__PULL_REQUEST__INIT;
    pull.incarnation = push.incarnation;
    pull.generation = 1;
    pull.n_slices = pull.n_versions = N_CLAIMED;
    pull.slices = slices;
    pull.versions = numbers;
    char report[4096];
    sg_allocations_begin();
    sg_status status = sg_store_push(d.f.store, d.f.now_ms, &push, &data, &pushed, NULL);
    sg_store_pull(d.f.store, d.f.now_ms, d.f.now_ms + 60000, &pull, &d);
    size_t n = sg_allocations_end(report, sizeof report);
    cr_assert_eq(n, 0, "%zu allocations:\n%s", n, report);
    cr_assert_eq(status, SG_FENCED);
    cr_assert_eq(d.n_lost, 1, "the pull was refused, too");
    sg_store_pushed_deinit(&pushed);
    sg_store_fail_pulls(d.f.store, SG_STOPPED, "stopped");
    sg_store_destroy(d.f.store);
}

/* The buffers of versions and copies that a slice has, or that lie in the pool, are those of its first steps. */
Test(store_memory, copied_contributions_of_two_workers_need_no_third_buffer)
{
    driver d;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.held_bytes = 0;
    driver_init(&d, &options);
    for (uint64_t step = 0; step < N_STEPS; step++) {
        for (uint32_t worker = 0; worker < 2; worker++)
            driver_push(&d, worker, step, 2);
        for (uint32_t i = 0; i < N_SLICES; i++) {
            const sg_store_slice *slice = &d.f.store->slices[i];
            unsigned n = (slice->newest ? 1u : 0u) + (slice->spare ? 1u : 0u);
            for (const sg_version *version = slice->older; version; version = version->next)
                n++;
            cr_assert_eq(n, 2, "slice %u has %u buffers after step %lu", i, n, (unsigned long)step);
        }
    }
    sg_store_fail_pulls(d.f.store, SG_STOPPED, "stopped");
    sg_store_destroy(d.f.store);
}
