/* The order of arrival does not matter, and many threads may drive one store. */
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <string.h>

#include "server/store_internal.h"
#include "store_weight.h"
#include "tests/support/seed.h"

TestSuite(store_threads, .timeout = 30);

/* --- the order of arrival does not matter --- */

#define SHUFFLE_WORKERS 5

static void train_shuffled(sg_rule rule, unsigned seed, float out[40])
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, rule);
    options.held_bytes = seed % 3 * (20u << 10); /* none, one message, some */
    fixture_init(&f, &options);
    f.lend = seed % 4 == 0 ? FIXTURE_LENT : FIXTURE_HELD;
    fixture_start(&f, weight_variables, 1, SHUFFLE_WORKERS, 0.5f);
    for (uint64_t step = 0; step < 4; step++) {
        int order[SHUFFLE_WORKERS * 3];
        for (int i = 0; i < SHUFFLE_WORKERS * 3; i++) {
            int j = rand_r(&seed) % (i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < SHUFFLE_WORKERS * 3; i++) {
            uint32_t worker = (uint32_t)order[i] / 3, slice = (uint32_t)order[i] % 3;
            float values[16];
            for (int k = 0; k < 16; k++)
                values[k] = sinf((float)(step * 1000 + worker * 100 + slice * 16) + (float)k) / 3.0f;
            fixture_push push = fixture_a_push(worker, step, 0x1f, values, slice == 2 ? 8 : 16);
            push.slices = &slice;
            push.weight = 3 + worker;
            push.learning_rate = 0.1f;
            push.split_bytes = 1 + (size_t)rand_r(&seed) % 80;
            sg_error err = {0};
            cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
        }
    }
    fixture_answer answer;
    fixture_pull(&f, 0, weight_slices, 3, 4, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    memcpy(out, answer.values, 40 * sizeof(float));
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}

Test(store_threads, the_result_has_the_same_bits_whatever_the_order_of_arrival)
{
    unsigned base = (unsigned)sg_seed_begin().first;
    for (sg_rule rule = SG_RULE_SGD; rule <= SG_RULE_ADAM; rule++) {
        float first[40], next[40];
        train_shuffled(rule, base, first);
        for (unsigned i = 1; i < 20; i++) {
            train_shuffled(rule, base + i, next);
            cr_assert_arr_eq(first, next, sizeof first, "rule %d, seeds %u and %u", (int)rule, base, base + i);
        }
    }
}

/* --- many threads --- */

#define N_THREADS    4u
#define N_STEPS      60u
#define N_SLICES     3
#define N_ASYNC_PUSH 200u

typedef struct trainer {
    fixture *f;
    uint32_t worker;
    unsigned seed;
    atomic_bool done;
} trainer;

static void pull_all(trainer *t, uint64_t version, fixture_answer *answer)
{
    fixture_pull(t->f, t->worker, weight_slices, N_SLICES, version, UINT32_MAX, answer);
    fixture_wait(t->f, answer);
}

/* Pushes gradients whose mean is 1 in every element, slice by slice in an order of its own, repeating some. */
static void *train_sync(void *argument)
{
    trainer *t = argument;
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = t->worker % 2 ? 0.5f : 1.5f;
    for (uint64_t step = 0; step < N_STEPS; step++) {
        uint32_t first = (uint32_t)rand_r(&t->seed) % N_SLICES;
        for (uint32_t i = 0; i < N_SLICES; i++) {
            uint32_t slice = (first + i) % N_SLICES;
            fixture_push push = fixture_a_push(t->worker, step, 0xf, values, slice == 2 ? 8 : 16);
            push.slices = &slice;
            for (int n = 1 + rand_r(&t->seed) % 2; n > 0; n--) {
                sg_error err = {0};
                sg_status status = fixture_send(t->f, &push, NULL, NULL, &err);
                SG_ASSERT(status == SG_OK);
            }
        }
        fixture_answer answer;
        pull_all(t, step + 1, &answer);
        SG_ASSERT(answer.status == SG_OK && answer.n_values == 40);
        for (int i = 0; i < 40; i++)
            SG_ASSERT(answer.values[i] == -(float)(step + 1));
        fixture_answer_deinit(&answer);
    }
    return NULL;
}

static void *train_async(void *argument)
{
    trainer *t = argument;
    float values[40];
    for (int i = 0; i < 40; i++)
        values[i] = 1.0f;
    for (uint64_t ticket = 0; ticket < N_ASYNC_PUSH; ticket++) {
        fixture_push push = fixture_a_push(t->worker, ticket * N_THREADS + t->worker, 1u << t->worker, values, 40);
        push.slices = weight_slices;
        push.n_slices = N_SLICES;
        for (int n = 1 + rand_r(&t->seed) % 2; n > 0; n--) {
            sg_error err = {0};
            sg_status status = fixture_send(t->f, &push, NULL, NULL, &err);
            SG_ASSERT(status == SG_OK);
        }
        fixture_answer answer;
        pull_all(t, ticket + 1, &answer); /* its own pushes alone made as many versions */
        SG_ASSERT(answer.status == SG_OK);
        for (int i = 0; i < 40; i++) /* a half-written slice would mix two numbers */
            SG_ASSERT(answer.values[i] == -(float)answer.numbers[i / 16]);
        fixture_answer_deinit(&answer);
    }
    return NULL;
}

typedef struct ticker {
    fixture *f;
    atomic_bool stop;
    uint64_t n_reports;
} ticker;

/* Meanwhile the loop of the ps ticks and reports. */
static void *tick(void *argument)
{
    ticker *t = argument;
    for (uint64_t i = 0; !atomic_load(&t->stop); i++) {
        Shardgrad__V1__PsReport report;
        sg_store_tick(t->f->store, t->f->now_ms);
        sg_store_report(t->f->store, &report);
        t->n_reports += report.slices > 0;
        sg_store_report_deinit(&report);
    }
    return NULL;
}

static void run_threads(fixture *f, void *(*train)(void *), unsigned seed)
{
    pthread_t threads[N_THREADS], tick_thread;
    trainer trainers[N_THREADS];
    ticker t = {.f = f};
    pthread_create(&tick_thread, NULL, tick, &t);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        trainers[i] = (trainer){.f = f, .worker = i, .seed = seed + i};
        pthread_create(&threads[i], NULL, train, &trainers[i]);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&t.stop, true);
    pthread_join(tick_thread, NULL);
}

Test(store_threads, threads_that_push_and_pull_at_random_get_exact_sums)
{
    unsigned seed = (unsigned)sg_seed_begin().first;
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 1, N_THREADS, 0.0f);
    run_threads(&f, train_sync, seed);
    weight_expect(&f, N_STEPS, -(float)N_STEPS);
    fixture_stop(&f);
}

Test(store_threads, threads_that_push_asynchronously_count_every_push_once)
{
    unsigned seed = (unsigned)sg_seed_begin().first;
    fixture f;
    weight_start(&f, SG_MODE_ASYNC, weight_variables, 1, N_THREADS, 0.0f);
    run_threads(&f, train_async, seed);
    weight_expect(&f, N_THREADS * N_ASYNC_PUSH, -(float)(N_THREADS * N_ASYNC_PUSH));
    fixture_stop(&f);
}

/* Pushes one ticket after the other until it is refused. */
static void *push_until_fenced(void *argument)
{
    trainer *t = argument;
    sg_status status = SG_OK;
    for (uint64_t ticket = 0; status == SG_OK; ticket++) {
        fixture_push push = fixture_a_push(t->worker, ticket, 1u << t->worker, weight_ones, 40);
        push.slices = weight_slices;
        push.n_slices = N_SLICES;
        status = fixture_send(t->f, &push, NULL, NULL, NULL);
    }
    SG_ASSERT(status == SG_FENCED);
    return NULL;
}

static uint64_t count_of(fixture *f, uint32_t index)
{
    sg_store_slice *slice = &f->store->slices[index];
    pthread_mutex_lock(&slice->mutex);
    uint64_t n = slice->round.step + slice->round.pending;
    pthread_mutex_unlock(&slice->mutex);
    return n;
}

Test(store_threads, no_contribution_enters_after_its_worker_was_fenced)
{
    for (int round = 0; round < 100; round++) {
        fixture f;
        weight_start(&f, SG_MODE_ASYNC, weight_variables, 1, 2, 0.0f);
        trainer t = {.f = &f, .worker = 1};
        pthread_t thread;
        uint64_t counts[N_SLICES];
        pthread_create(&thread, NULL, push_until_fenced, &t);
        while (count_of(&f, 0) < 5)
            ;
        fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
        for (uint32_t i = 0; i < N_SLICES; i++)
            counts[i] = count_of(&f, i);
        pthread_join(thread, NULL);
        for (uint32_t i = 0; i < N_SLICES; i++)
            cr_assert_eq(count_of(&f, i), counts[i], "slice %u, round %d", i, round);
        fixture_stop(&f);
    }
}

static void *excuse_worker_1(void *argument)
{
    trainer *t = argument;
    fixture_excuse(t->f, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
    atomic_store(&t->done, true);
    return NULL;
}

/* Who holds a slice's mutex is about to count a contribution. */
Test(store_threads, an_order_that_fences_waits_for_contributions_that_were_let_in_before)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 1, 2, 0.0f);
    trainer t = {.f = &f};
    pthread_t thread;
    sg_store_slice *slice = &f.store->slices[N_SLICES - 1];
    pthread_mutex_lock(&slice->mutex);
    pthread_create(&thread, NULL, excuse_worker_1, &t);
    fixture_push push = fixture_a_push(1, 7, 0x3, weight_ones, 16);
    while (fixture_send(&f, &push, NULL, NULL, NULL) != SG_FENCED) /* EARLY before that */
        ;
    for (int i = 0; i < 1000; i++) {
        cr_assert_not(atomic_load(&t.done), "it was acknowledged too early");
        sched_yield();
    }
    pthread_mutex_unlock(&slice->mutex);
    pthread_join(thread, NULL);
    fixture_stop(&f);
}

static void fence_on_non_finite(void *user, sg_log_level level, const char *event, const char *fields)
{
    (void)level, (void)fields;
    if (strcmp(event, "non_finite") == 0)
        fixture_excuse(user, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
}

Test(store_threads, a_worker_that_is_fenced_in_the_middle_of_its_push_adds_nothing_more)
{
    for (uint64_t held_bytes = 0; held_bytes <= 1u << 20; held_bytes += 1u << 20) {
        fixture f;
        sg_log log = {.fn = fence_on_non_finite, .user = &f, .min_level = SG_LOG_WARN};
        sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
        options.held_bytes = held_bytes;
        options.log = &log;
        fixture_init(&f, &options);
        fixture_start(&f, weight_variables, 1, 2, 0.0f);
        float values[40];
        memcpy(values, weight_ones, sizeof values);
        values[20] = NAN; /* in slice 1 */
        fixture_push push = fixture_a_push(1, 0, 0x3, values, 40);
        push.slices = weight_slices;
        push.n_slices = N_SLICES;
        fixture_expect_refused(&f, &push, SG_FENCED, "worker 1 was superseded, has left or was given up");
        cr_assert_eq(f.store->slices[0].n_parts, 1);
        cr_assert_eq(f.store->slices[1].n_parts, 1);
        cr_assert_eq(f.store->slices[2].n_parts, 0);
        fixture_stop(&f);
    }
}

typedef struct puller {
    fixture *f;
    uint32_t worker;
    atomic_bool stop;
} puller;

static void *pull_for_ever(void *argument)
{
    puller *p = argument;
    while (!atomic_load(&p->stop)) {
        fixture_answer answer;
        fixture_pull(p->f, p->worker, weight_slices, N_SLICES, 1, UINT32_MAX, &answer);
        fixture_wait(p->f, &answer);
        SG_ASSERT(answer.n_answers == 1);
        fixture_answer_deinit(&answer);
    }
    return NULL;
}

Test(store_threads, pulls_that_time_out_while_the_version_is_made_are_answered_once)
{
    for (int round = 0; round < 20; round++) {
        fixture f;
        sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
        options.park_ms = 0;
        fixture_init(&f, &options);
        fixture_start(&f, weight_variables, 1, 2, 0.0f);
        ticker t = {.f = &f};
        puller p = {.f = &f, .worker = 1};
        pthread_t tick_thread, pull_thread;
        pthread_create(&tick_thread, NULL, tick, &t);
        pthread_create(&pull_thread, NULL, pull_for_ever, &p);
        for (uint32_t slice = 0; slice < N_SLICES; slice++) {
            fixture_push push = fixture_a_push(0, 0, 0x1, weight_ones, slice == 2 ? 8 : 16);
            push.slices = &slice;
            sg_error err;
            cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
        }
        atomic_store(&p.stop, true);
        pthread_join(pull_thread, NULL);
        atomic_store(&t.stop, true);
        pthread_join(tick_thread, NULL);
        fixture_stop(&f);
    }
}
