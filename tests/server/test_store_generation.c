/* A generation begins in a store that is in use. */
#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "common/status.h"
#include "server/store_internal.h"
#include "tests/server/store_fixture.h"

TestSuite(store_generation, .timeout = 60);

static const fixture_variable variables[] = {{.name = "w", .n_elems = 20}, {.name = "b", .n_elems = 4}};

Test(store_generation, a_new_one_drops_rounds_and_workers_and_answers_who_waits)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_MOMENTUM);
    fixture_init(&f, &options);
    fixture_start(&f, variables, 2, 2, 1.0f);
    const uint32_t slices[] = {0, 1, 2};
    float gradients[24] = {0};
    fixture_push push = fixture_a_push(0, 0, 3, gradients, 24);
    push.slices = slices;
    push.n_slices = 3;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK, "%s", err.message); /* waits for worker 1 */
    fixture_answer answer = {0};
    fixture_pull(&f, 0, slices, 3, 1, 60000, &answer);
    cr_assert_not(answer.answered);
    cr_assert_eq(fixture_begin(&f, 2, &err), SG_OK, "%s", err.message);
    cr_assert(answer.answered);
    cr_assert_eq(answer.status, SG_ROLLED_BACK);
    cr_assert_not_null(strstr(answer.message, "ps 1 (host:9) was not heard"), "'%s'", answer.message);
    cr_assert_eq(f.n_held, f.n_let_go, "nothing of it is kept");
    push.worker = 1;
    push.incarnation = FIXTURE_INCARNATION(2);
    fixture_expect_refused(&f, &push, SG_ROLLED_BACK,
                           "generation 1 has passed; ps 0 is in generation 2: ps 1 (host:9) was not heard for 5000 ms");
    push.generation = 2;
    fixture_expect_refused(&f, &push, SG_FENCED, "is not known");
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.generation, 2);
    cr_assert_eq(report.max_step, 0);
    sg_store_report_deinit(&report);
    fixture_answer_deinit(&answer);
    fixture_deinit(&f);
}

Test(store_generation, only_a_later_one_begins_and_orders_of_another_are_refused)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_start(&f, variables, 2, 1, 1.0f);
    sg_error err;
    cr_assert_eq(fixture_begin(&f, 1, &err), SG_INVALID);
    cr_assert_eq(fixture_begin(&f, 3, &err), SG_OK);
    cr_assert_eq(fixture_begin(&f, 2, &err), SG_ROLLED_BACK, "it does not take up a number");
    fixture_deinit(&f);
}

Test(store_generation, the_same_variables_may_be_declared_again_and_no_others)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_declare(&f, variables, 2, 1);
    fixture_declare(&f, variables, 2, 1);
    Shardgrad__V1__Variable other = SHARDGRAD__V1__VARIABLE__INIT;
    uint64_t shape[] = {21};
    other.name = (char *)"w";
    other.shape = shape;
    other.n_shape = 1;
    Shardgrad__V1__Variable *list[] = {&other};
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.sequence = f.sequence + 1;
    header.generation = 1;
    Shardgrad__V1__PsDeclareRequest request = SHARDGRAD__V1__PS_DECLARE_REQUEST__INIT;
    request.header = &header;
    request.variables = list;
    request.n_variables = 1;
    request.n_ps = 1;
    request.slice_bytes = FIXTURE_SLICE_BYTES;
    sg_error err;
    cr_assert_eq(sg_store_declare(f.store, &request, &err), SG_MISMATCH);
    fixture_deinit(&f);
}

typedef struct holder {
    pthread_mutex_t *mutex;
    sem_t holds, may_go;
} holder;

static void *hold(void *user)
{
    holder *h = user;
    pthread_mutex_lock(h->mutex);
    sem_post(&h->holds);
    sem_wait(&h->may_go);
    pthread_mutex_unlock(h->mutex);
    return NULL;
}

/* Holds this mutex until `may_go`. */
static pthread_t hold_begin(holder *h, pthread_mutex_t *mutex)
{
    pthread_t thread;
    h->mutex = mutex;
    sem_init(&h->holds, 0, 0);
    sem_init(&h->may_go, 0, 0);
    cr_assert_eq(pthread_create(&thread, NULL, hold, h), 0);
    sem_wait(&h->holds);
    return thread;
}

typedef struct puller {
    fixture *f;
    fixture_answer answer;
} puller;

static void *pull_two(void *user)
{
    static const uint32_t slices[] = {0, 1};
    puller *p = user;
    fixture_pull(p->f, 0, slices, 2, 0, 60000, &p->answer);
    return NULL;
}

/* It has taken one slice, and finds the next one with the values of another generation. */
Test(store_generation, a_pull_that_is_being_answered_when_one_begins_gets_no_values_of_it)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_start(&f, variables, 2, 1, 1.0f);
    sg_store_slice *first = &f.store->slices[0], *second = &f.store->slices[1];
    puller p = {.f = &f};
    holder h;
    pthread_t threads[2] = {hold_begin(&h, &second->mutex)};
    cr_assert_eq(pthread_create(&threads[1], NULL, pull_two, &p), 0);
    while (atomic_load(&first->newest->references) < 2)
        sched_yield();
    pthread_rwlock_wrlock(&f.store->lock);
    cr_assert_eq(sg_store_begin_generation(f.store, 2, "", NULL), SG_OK);
    f.store->beginning = false;
    f.store->committed = true;
    pthread_rwlock_unlock(&f.store->lock);
    second->newest->values[0] = 9;
    sem_post(&h.may_go);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    cr_assert(p.answer.answered);
    cr_assert_eq(p.answer.status, SG_ROLLED_BACK);
    fixture_answer_deinit(&p.answer);
    fixture_deinit(&f);
}

/* --- one order after the other ---------------------------------------------------------------------------------- */

/* By the order that comes next. */
static sg_status cut(fixture *f)
{
    uint64_t steps[] = {0};
    Shardgrad__V1__Cut order = SHARDGRAD__V1__CUT__INIT;
    order.steps = steps;
    order.n_steps = 1;
    order.number = 1;
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.sequence = f->sequence + 1;
    header.generation = 1;
    Shardgrad__V1__OrderRequest request = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    request.header = &header;
    request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT;
    request.cut = &order;
    return sg_store_order(f->store, f->now_ms, &request, NULL);
}

static void *cut_first(void *user)
{
    sg_status *status = sg_xcalloc(1, sizeof *status);
    *status = cut(user);
    return status;
}

static uint64_t n_applied(fixture *f)
{
    pthread_rwlock_rdlock(&f->store->lock);
    uint64_t n = f->store->sequence;
    pthread_rwlock_unlock(&f->store->lock);
    return n;
}

/* A connection that breaks brings the order again while a thread is at it: the coordinator must not go on, or what is
 * left of the order would be done to the generation after it. */
Test(store_generation, an_order_is_acknowledged_and_the_next_one_taken_only_when_it_was_carried_out)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_start(&f, variables, 2, 2, 1.0f);
    holder h;
    pthread_t threads[2] = {hold_begin(&h, &f.store->slices[1].mutex)};
    cr_assert_eq(pthread_create(&threads[1], NULL, cut_first, &f), 0);
    while (n_applied(&f) == f.sequence)
        sched_yield();
    cr_assert_eq(cut(&f), SG_NOT_READY);
    f.sequence++;
    sg_error err;
    cr_assert_eq(fixture_begin(&f, 2, &err), SG_NOT_READY);
    sem_post(&h.may_go);
    sg_status *status;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], (void **)&status);
    cr_assert_eq(*status, SG_OK);
    free(status);
    f.sequence--;
    cr_assert_eq(fixture_begin(&f, 2, &err), SG_OK, "%s", err.message);
    fixture_deinit(&f);
}
