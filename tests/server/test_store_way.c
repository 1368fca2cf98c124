/* A generation that goes another way: in another mode, or by another rule. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "common/status.h"
#include "server/store_internal.h"
#include "tests/server/store_fixture.h"

TestSuite(store_way, .timeout = 60);

static const fixture_variable variables[] = {{.name = "w", .n_elems = 20}, {.name = "b", .n_elems = 4}};

static Shardgrad__V1__OrderHeader next_header(fixture *f)
{
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.sequence = ++f->sequence;
    header.generation = 2;
    return header;
}

static void order(fixture *f, Shardgrad__V1__OrderRequest *request, sg_status want)
{
    sg_error err = {.message = ""};
    Shardgrad__V1__OrderHeader header = next_header(f);
    request->header = &header;
    cr_assert_eq(sg_store_order(f->store, f->now_ms, request, &err), want, "%s", err.message);
    f->sequence -= want == SG_NOT_READY;
}

static sg_status declare(fixture *f, Shardgrad__V1__Mode mode, const char *rule, uint64_t backup, sg_error *err)
{
    Shardgrad__V1__Variable list[2], *pointers[2];
    uint64_t shapes[2];
    for (size_t i = 0; i < 2; i++) {
        shardgrad__v1__variable__init(&list[i]);
        shapes[i] = variables[i].n_elems;
        list[i].name = (char *)variables[i].name;
        list[i].shape = &shapes[i];
        list[i].n_shape = 1;
        pointers[i] = &list[i];
    }
    Shardgrad__V1__OrderHeader header = next_header(f);
    Shardgrad__V1__PsDeclareRequest request = SHARDGRAD__V1__PS_DECLARE_REQUEST__INIT;
    request.header = &header;
    request.variables = pointers;
    request.n_variables = 2;
    request.n_ps = 1;
    request.slice_bytes = FIXTURE_SLICE_BYTES;
    request.mode = mode;
    request.rule = (char *)rule;
    request.backup_workers = backup;
    return sg_store_declare(f->store, &request, err);
}

static void begin(fixture *f)
{
    Shardgrad__V1__Begin begin = SHARDGRAD__V1__BEGIN__INIT;
    Shardgrad__V1__OrderRequest request = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    begin.reason = (char *)"update.mode is another from now on";
    request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN;
    request.begin = &begin;
    order(f, &request, SG_OK);
    Shardgrad__V1__Hyper hyper = SHARDGRAD__V1__HYPER__INIT;
    hyper.number = 1;
    hyper.beta1 = 0.9f;
    hyper.beta2 = 0.999f;
    hyper.epsilon = 1e-8f;
    hyper.momentum = 0.5f;
    request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER;
    request.hyper = &hyper;
    order(f, &request, SG_OK);
}

/* Slices of an async checkpoint, which are of different steps; each slot is 9. */
static sg_status read_checkpoint(void *user, uint32_t variable, uint64_t first_elem, uint64_t n_elems, float *values,
                                 float *const *slots, size_t n_slots, uint64_t *step, uint64_t *n_applied,
                                 sg_error *err)
{
    (void)user;
    (void)err;
    for (uint64_t i = 0; i < n_elems; i++) {
        values[i] = 1;
        for (size_t k = 0; k < n_slots; k++)
            slots[k][i] = 9;
    }
    *step = 3 + variable + (first_elem > 0);
    *n_applied = 2;
    return SG_OK;
}

static void on_load(void *user, const sg_store_load *load)
{
    *(uint64_t *)user = load->set_iteration;
}

/* At this step; UINT64_MAX: each slice at its own. */
static void load(fixture *f, uint64_t step, bool fresh_slots)
{
    Shardgrad__V1__Load load = SHARDGRAD__V1__LOAD__INIT;
    Shardgrad__V1__OrderRequest request = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    load.iteration = 7;
    load.generation = 1;
    load.steps = &step;
    load.n_steps = step != UINT64_MAX;
    load.fresh_slots = fresh_slots;
    request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD;
    request.load = &load;
    order(f, &request, SG_NOT_READY);
    for (uint32_t place = 0; place < sg_store_n_slices(f->store); place++)
        cr_assert_eq(sg_store_fill(f->store, 2, place, read_checkpoint, NULL, NULL), SG_OK);
    sg_store_loaded(f->store, 2, SG_OK, "");
    order(f, &request, SG_OK);
    for (uint32_t worker = 0; worker < 2; worker++) {
        Shardgrad__V1__Admit admit = SHARDGRAD__V1__ADMIT__INIT;
        admit.worker = worker;
        admit.incarnation = FIXTURE_INCARNATION(10 + worker);
        admit.address = (char *)"";
        request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT;
        request.admit = &admit;
        order(f, &request, SG_OK);
    }
}

static void start(fixture *f, sg_mode mode, sg_rule rule)
{
    static uint64_t loaded;
    sg_store_options options = fixture_options(mode, rule);
    options.on_load = on_load;
    options.cut_user = &loaded;
    fixture_init(f, &options);
    fixture_start(f, variables, 2, 2, 1.0f);
    begin(f);
}

static void push(fixture *f, uint32_t worker, uint64_t step, uint64_t members)
{
    static const uint32_t slices[] = {0, 1, 2};
    float gradients[24];
    for (size_t i = 0; i < 24; i++)
        gradients[i] = 2;
    fixture_push made = fixture_a_push(worker, step, members, gradients, 24);
    made.incarnation = FIXTURE_INCARNATION(10 + worker);
    made.generation = 2;
    made.slices = slices;
    made.n_slices = 3;
    made.learning_rate = 0.5f;
    sg_error err;
    cr_assert_eq(fixture_send(f, &made, NULL, NULL, &err), SG_OK, "%s", err.message);
}

static void expect(const fixture *f, uint32_t place, uint64_t step, double value)
{
    const sg_version *newest = f->store->slices[place].newest;
    cr_assert_eq(newest->step, step, "slice %u is at %lu", place, (unsigned long)newest->step);
    cr_assert_float_eq((double)newest->values[0], value, 1e-6, "slice %u: %g", place, (double)newest->values[0]);
}

Test(store_way, async_becomes_sync_at_one_step_with_the_first_application_of_another_rule)
{
    fixture f;
    sg_error err;
    start(&f, SG_MODE_ASYNC, SG_RULE_SGD);
    cr_assert_eq(declare(&f, SHARDGRAD__V1__MODE__MODE_SYNC, "adam", 0, &err), SG_OK, "%s", err.message);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.slot_bytes, 2 * report.value_bytes);
    cr_assert_eq(report.n_staleness, 0);
    sg_store_report_deinit(&report);
    load(&f, 7, true);
    for (uint32_t place = 0; place < 3; place++)
        expect(&f, place, 7, 1);
    push(&f, 0, 7, 3);
    expect(&f, 0, 7, 1); /* it waits for the other */
    push(&f, 1, 7, 3);
    for (uint32_t place = 0; place < 3; place++)
        expect(&f, place, 8, 0.5); /* the first step of adam is the learning rate */
    cr_assert_eq(f.store->slices[0].n_applied, 1);
    fixture_deinit(&f);
}

Test(store_way, sync_becomes_async_and_its_slots_go_on)
{
    fixture f;
    sg_error err;
    start(&f, SG_MODE_SYNC, SG_RULE_MOMENTUM);
    cr_assert_eq(declare(&f, SHARDGRAD__V1__MODE__MODE_SSP, "momentum", 0, &err), SG_OK, "%s", err.message);
    load(&f, UINT64_MAX, false);
    push(&f, 0, 0, 1);
    expect(&f, 0, 4, 1 - 0.5 * (0.5 * 9 + 2));
    expect(&f, 1, 5, 1 - 0.5 * (0.5 * 9 + 2)); /* each at its own step */
    cr_assert_eq(f.store->slices[0].n_applied, 3);
    fixture_deinit(&f);
}

Test(store_way, sync_takes_backup_workers_and_counts_the_applications_on)
{
    fixture f;
    sg_error err;
    start(&f, SG_MODE_SYNC, SG_RULE_MOMENTUM);
    cr_assert_eq(declare(&f, SHARDGRAD__V1__MODE__MODE_SYNC, "nesterov", 1, &err), SG_OK, "%s", err.message);
    load(&f, 7, false);
    push(&f, 0, 7, 3);
    expect(&f, 0, 8, 1 - 0.5 * (2 + 0.5 * (0.5 * 9 + 2)));
    cr_assert_eq(f.store->slices[0].n_applied, 3, "2 were made before");
    fixture_deinit(&f);
}

Test(store_way, what_is_unknown_is_refused_and_nothing_changes_while_there_are_values)
{
    fixture f;
    sg_error err;
    start(&f, SG_MODE_SYNC, SG_RULE_SGD);
    cr_assert_eq(declare(&f, SHARDGRAD__V1__MODE__MODE_SYNC, "adan", 0, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "'adan' is unknown"), "%s", err.message);
    cr_assert_eq(declare(&f, (Shardgrad__V1__Mode)9, "sgd", 0, &err), SG_INVALID);
    load(&f, 7, false);
    cr_assert_eq(declare(&f, SHARDGRAD__V1__MODE__MODE_ASYNC, "sgd", 0, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "while there are values"), "%s", err.message);
    push(&f, 0, 7, 1);
    expect(&f, 0, 8, 0);
    fixture_deinit(&f);
}

typedef struct watcher {
    const sg_store *store;
    atomic_bool looks, stop;
    bool saw_another;
} watcher;

static void *watch(void *user)
{
    watcher *w = user;
    while (!atomic_load(&w->stop)) {
        w->saw_another |= !sg_store_is_sync(w->store) || sg_store_rule(w->store) != SG_RULE_SGD;
        atomic_store(&w->looks, true);
    }
    return NULL;
}

Test(store_way, who_looks_on_never_sees_a_way_that_is_refused)
{
    fixture f;
    sg_error err;
    start(&f, SG_MODE_SYNC, SG_RULE_SGD);
    load(&f, 7, false);
    watcher w = {.store = f.store};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, watch, &w), 0);
    while (!atomic_load(&w.looks))
        sched_yield();
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(declare(&f, SHARDGRAD__V1__MODE__MODE_ASYNC, "adam", 0, &err), SG_INVALID);
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    cr_assert_not(w.saw_another);
    fixture_deinit(&f);
}
