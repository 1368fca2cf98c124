#include "store_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer_add(fixture_answer *answer, const sg_version *version)
{
    answer->values = realloc(answer->values, (answer->n_values + version->n_elems) * sizeof(float));
    memcpy(answer->values + answer->n_values, version->values, version->n_elems * sizeof(float));
    answer->n_values += version->n_elems;
}

static void answer_pull(void *user, void *call, const sg_store_pull_answer *given)
{
    fixture *f = user;
    fixture_answer *answer = call;
    pthread_mutex_lock(&f->mutex);
    answer->answered = true;
    answer->n_answers++;
    answer->status = given->status;
    snprintf(answer->message, sizeof answer->message, "%s", given->message ? given->message : "");
    answer->n = given->n;
    for (size_t i = 0; i < given->n; i++) {
        answer_add(answer, given->versions[i]);
        sg_version_release(given->versions[i]);
        if (i < SG_ARRAY_LEN(answer->numbers))
            answer->numbers[i] = given->numbers[i];
    }
    pthread_cond_broadcast(&f->answered);
    pthread_mutex_unlock(&f->mutex);
}

sg_store_options fixture_options(sg_mode mode, sg_rule rule)
{
    return (sg_store_options){.ps = 0,
                              .mode = mode,
                              .rule = rule,
                              .non_finite = SG_NON_FINITE_SKIP,
                              .park_ms = 2000,
                              .warn_after_ms = 10000,
                              .message_bytes = 1u << 20,
                              .held_bytes = 1u << 20,
                              .max_workers = 16};
}

void fixture_init(fixture *f, const sg_store_options *options)
{
    *f = (fixture){.now_ms = 1000000, .slice_bytes = FIXTURE_SLICE_BYTES};
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->answered, NULL);
    sg_store_options with_answers = *options;
    with_answers.answer_pull = answer_pull;
    with_answers.user = f;
    f->store = sg_store_create(&with_answers);
    sg_store_set_life(f->store, FIXTURE_LIFE);
}

void fixture_deinit(fixture *f)
{
    sg_store_destroy(f->store);
    cr_assert_eq(f->n_held, f->n_let_go, "%u messages were held, %u let go of", f->n_held, f->n_let_go);
    pthread_cond_destroy(&f->answered);
    pthread_mutex_destroy(&f->mutex);
}

/* --- orders --- */

void fixture_declare(fixture *f, const fixture_variable *variables, size_t n, uint32_t n_ps)
{
    Shardgrad__V1__Variable *messages = calloc(n, sizeof *messages), **pointers = calloc(n, sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        shardgrad__v1__variable__init(&messages[i]);
        messages[i].name = (char *)variables[i].name;
        messages[i].n_shape = 1;
        messages[i].shape = (uint64_t *)&variables[i].n_elems;
        messages[i].group = variables[i].group;
        messages[i].frozen = variables[i].frozen;
        messages[i].average = variables[i].average;
        pointers[i] = &messages[i];
    }
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.sequence = ++f->sequence;
    header.generation = 1;
    Shardgrad__V1__PsDeclareRequest request = SHARDGRAD__V1__PS_DECLARE_REQUEST__INIT;
    request.header = &header;
    request.n_variables = n;
    request.variables = pointers;
    request.n_ps = n_ps;
    request.slice_bytes = f->slice_bytes;
    sg_error err = {0};
    cr_assert_eq(sg_store_declare(f->store, &request, &err), SG_OK, "%s", err.message);
    free(messages);
    free(pointers);
}

sg_status fixture_order(fixture *f, Shardgrad__V1__OrderRequest *order, sg_error *err)
{
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.sequence = ++f->sequence;
    header.generation = 1;
    order->header = &header;
    sg_status status = sg_store_order(f->store, f->now_ms, order, err);
    order->header = NULL;
    return status;
}

sg_status fixture_begin(fixture *f, uint64_t generation, sg_error *err)
{
    char reason[] = "ps 1 (host:9) was not heard for 5000 ms";
    Shardgrad__V1__Begin order = SHARDGRAD__V1__BEGIN__INIT;
    order.reason = reason;
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.sequence = ++f->sequence;
    header.generation = generation;
    Shardgrad__V1__OrderRequest request = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    request.header = &header;
    request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN;
    request.begin = &order;
    return sg_store_order(f->store, f->now_ms, &request, err);
}

static void order_ok(fixture *f, Shardgrad__V1__OrderRequest *order)
{
    sg_error err = {0};
    cr_assert_eq(fixture_order(f, order, &err), SG_OK, "%s", err.message);
}

void fixture_admit(fixture *f, uint32_t worker, uint64_t incarnation)
{
    char address[32];
    snprintf(address, sizeof address, "host%u:4242", worker);
    Shardgrad__V1__Admit admit = SHARDGRAD__V1__ADMIT__INIT;
    admit.worker = worker;
    admit.incarnation = incarnation;
    admit.address = address;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT;
    order.admit = &admit;
    order_ok(f, &order);
}

void fixture_attempt(fixture *f, uint64_t attempt, uint64_t incarnation)
{
    Shardgrad__V1__Attempt message = SHARDGRAD__V1__ATTEMPT__INIT;
    message.attempt = attempt;
    message.incarnation = incarnation;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ATTEMPT;
    order.attempt = &message;
    order_ok(f, &order);
}

sg_status fixture_seal(fixture *f, uint64_t attempt, sg_error *err)
{
    Shardgrad__V1__Seal seal = SHARDGRAD__V1__SEAL__INIT;
    seal.attempt = attempt;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL;
    order.seal = &seal;
    return fixture_order(f, &order, err);
}

void fixture_commit(fixture *f, uint64_t attempt)
{
    Shardgrad__V1__Commit commit = SHARDGRAD__V1__COMMIT__INIT;
    commit.attempt = attempt;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_COMMIT;
    order.commit = &commit;
    order_ok(f, &order);
}

void fixture_hyper(fixture *f, const Shardgrad__V1__Hyper *hyper)
{
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER;
    order.hyper = (Shardgrad__V1__Hyper *)hyper;
    order_ok(f, &order);
}

void fixture_excuse(fixture *f, uint32_t worker, uint64_t incarnation, const uint64_t *steps, size_t n,
                    uint64_t members)
{
    Shardgrad__V1__Step messages[16], *pointers[16];
    for (size_t i = 0; i < n; i++) {
        shardgrad__v1__step__init(&messages[i]);
        messages[i].step = steps[i];
        messages[i].iteration = steps[i];
        messages[i].members = (ProtobufCBinaryData){.len = sizeof members, .data = (uint8_t *)&members};
        messages[i].hyper = 1;
        messages[i].learning_rate = 1.0f;
        pointers[i] = &messages[i];
    }
    Shardgrad__V1__Excuse excuse = SHARDGRAD__V1__EXCUSE__INIT;
    excuse.worker = worker;
    excuse.incarnation = incarnation;
    excuse.n_steps = n;
    excuse.steps = pointers;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;
    order.excuse = &excuse;
    order_ok(f, &order);
}

void fixture_end(fixture *f, sg_status status, const char *reason)
{
    Shardgrad__V1__End end = SHARDGRAD__V1__END__INIT;
    end.status = (uint32_t)status;
    end.reason = (char *)reason;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;
    order.end = &end;
    order_ok(f, &order);
}

sg_status fixture_initialize(fixture *f, uint32_t worker, uint64_t incarnation, uint64_t attempt, uint32_t slice,
                             const float *values, size_t n_values, sg_error *err)
{
    Shardgrad__V1__InitializeRequest request = SHARDGRAD__V1__INITIALIZE_REQUEST__INIT;
    request.worker = worker;
    request.incarnation = incarnation;
    request.generation = 1;
    request.attempt = attempt;
    request.n_slices = 1;
    request.slices = &slice;
    sg_span data = {(const uint8_t *)values, n_values * sizeof(float)};
    return sg_store_initialize(f->store, &request, &data, 1, err);
}

static void initialize_all(fixture *f, const fixture_variable *variables, size_t n, float value)
{
    float values[FIXTURE_SLICE_BYTES / sizeof(float)];
    for (size_t i = 0; i < SG_ARRAY_LEN(values); i++)
        values[i] = value;
    uint32_t slice = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint64_t left = variables[i].n_elems; left > 0; slice++) {
            uint64_t some = left < SG_ARRAY_LEN(values) ? left : SG_ARRAY_LEN(values);
            sg_error err = {0};
            cr_assert_eq(fixture_initialize(f, 0, FIXTURE_INCARNATION(1), 1, slice, values, some, &err), SG_OK, "%s",
                         err.message);
            left -= some;
        }
    }
}

void fixture_start(fixture *f, const fixture_variable *variables, size_t n, uint32_t n_workers, float value)
{
    for (uint32_t worker = 0; worker < n_workers; worker++)
        fixture_admit(f, worker, FIXTURE_INCARNATION(worker + 1));
    fixture_declare(f, variables, n, 1);
    Shardgrad__V1__Hyper hyper = SHARDGRAD__V1__HYPER__INIT;
    hyper.number = 1;
    hyper.momentum = 0.9f;
    hyper.beta1 = 0.9f;
    hyper.beta2 = 0.999f;
    hyper.epsilon = 1e-8f;
    fixture_hyper(f, &hyper);
    fixture_attempt(f, 1, FIXTURE_INCARNATION(1));
    initialize_all(f, variables, n, value);
    sg_error err = {0};
    cr_assert_eq(fixture_seal(f, 1, &err), SG_OK, "%s", err.message);
    fixture_commit(f, 1);
}

/* --- data calls --- */

fixture_push fixture_a_push(uint32_t worker, uint64_t step, uint64_t members, const float *values, size_t n_values)
{
    static const uint32_t first_slice = 0;
    return (fixture_push){.worker = worker,
                          .incarnation = FIXTURE_INCARNATION(worker + 1),
                          .generation = 1,
                          .step = step,
                          .weight = 1,
                          .members = members,
                          .iteration = step,
                          .hyper = 1,
                          .learning_rate = 1.0f,
                          .slices = &first_slice,
                          .n_slices = 1,
                          .values = values,
                          .n_values = n_values};
}

/* A message as it was received: its bytes lie scattered, and are gone with the last reference. */
typedef struct received {
    fixture *f;
    atomic_uint references;
    uint8_t *bytes;
    size_t n_bytes;
    sg_span *spans;
    size_t n_spans;
} received;

static received *receive(fixture *f, const void *values, size_t n_bytes, size_t split_bytes)
{
    received *r = calloc(1, sizeof *r);
    *r = (received){.f = f, .references = 1, .n_bytes = n_bytes};
    r->bytes = malloc(n_bytes + 1);
    r->spans = calloc(n_bytes + 1, sizeof *r->spans);
    if (n_bytes > 0)
        memcpy(r->bytes, values, n_bytes);
    size_t split = split_bytes ? split_bytes : n_bytes;
    for (size_t at = 0; at < n_bytes; at += split)
        r->spans[r->n_spans++] = (sg_span){r->bytes + at, n_bytes - at < split ? n_bytes - at : split};
    return r;
}

static void received_release(received *r)
{
    if (atomic_fetch_sub(&r->references, 1) != 1)
        return;
    memset(r->bytes, 0xff, r->n_bytes);
    free(r->bytes);
    free(r->spans);
    free(r);
}

static void hold(void *owner)
{
    received *r = owner;
    atomic_fetch_add(&r->references, 1);
    atomic_fetch_add(&r->f->n_held, 1);
}

static void let_go(void *owner)
{
    received *r = owner;
    atomic_fetch_add(&r->f->n_let_go, 1);
    received_release(r);
}

sg_status fixture_send_for(fixture *f, const fixture_push *push, sg_store_pushed *pushed, sg_error *err)
{
    Shardgrad__V1__Step step = SHARDGRAD__V1__STEP__INIT;
    step.group = push->group;
    step.iteration = push->iteration;
    step.members = (ProtobufCBinaryData){.len = sizeof push->members, .data = (uint8_t *)&push->members};
    step.hyper = push->hyper;
    step.learning_rate = push->learning_rate;
    step.checkpoint_mark = push->mark;
    uint64_t *steps = calloc(push->n_slices + 1, sizeof *steps);
    for (size_t i = 0; i < push->n_slices; i++)
        steps[i] = push->step;
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = push->worker;
    request.incarnation = push->incarnation;
    request.generation = push->generation;
    request.step = &step;
    request.weight = push->weight;
    request.dtype = (Shardgrad__V1__DataType)push->dtype;
    request.n_slices = request.n_steps = push->n_slices;
    request.slices = (uint32_t *)push->slices;
    request.steps = steps;
    received *r =
        receive(f, push->values, push->n_bytes > 0 ? push->n_bytes : push->n_values * sizeof(float), push->split_bytes);
    sg_store_data data = {.spans = r->spans, .n_spans = r->n_spans, .kept_bytes = r->n_bytes + f->kept_beside_bytes};
    if (f->lend == FIXTURE_HELD) {
        data.owner = r;
        data.keep = hold;
        data.release = let_go;
    }
    sg_status status = sg_store_push(f->store, f->now_ms, &request, &data, pushed, err);
    received_release(r);
    free(steps);
    return status;
}

sg_status fixture_send(fixture *f, const fixture_push *push, uint32_t *non_finite, size_t *n_non_finite, sg_error *err)
{
    sg_store_pushed pushed = {.wants_versions = false};
    sg_status status = fixture_send_for(f, push, &pushed, err);
    for (size_t i = 0; non_finite && i < pushed.n_non_finite; i++)
        non_finite[i] = pushed.non_finite[i];
    if (n_non_finite)
        *n_non_finite = pushed.n_non_finite;
    sg_store_pushed_deinit(&pushed);
    return status;
}

void fixture_push_pull(fixture *f, const fixture_push *push, fixture_answer *answer)
{
    sg_store_pushed pushed = {.wants_versions = true};
    sg_error err = {0};
    *answer = (fixture_answer){.answered = true, .n_answers = 1};
    answer->status = fixture_send_for(f, push, &pushed, &err);
    snprintf(answer->message, sizeof answer->message, "%s", err.message);
    answer->n = pushed.n_versions;
    for (size_t i = 0; i < pushed.n_versions; i++) {
        answer->numbers[i] = pushed.versions[i]->step;
        answer_add(answer, pushed.versions[i]);
        sg_version_release(pushed.versions[i]);
    }
    sg_store_pushed_deinit(&pushed);
}

void fixture_push_ok(fixture *f, uint32_t worker, uint64_t step, uint64_t members, const float *values, size_t n_values)
{
    fixture_push push = fixture_a_push(worker, step, members, values, n_values);
    sg_error err = {0};
    cr_assert_eq(fixture_send(f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
}

void fixture_pull_as(fixture *f, uint32_t worker, uint64_t incarnation, const uint32_t *slices, size_t n,
                     uint64_t version, uint64_t timeout_ms, fixture_answer *answer)
{
    uint64_t *versions = calloc(n + 1, sizeof *versions);
    for (size_t i = 0; i < n; i++)
        versions[i] = version;
    Shardgrad__V1__PullRequest request = SHARDGRAD__V1__PULL_REQUEST__INIT;
    request.worker = worker;
    request.incarnation = incarnation;
    request.generation = 1;
    request.n_slices = request.n_versions = n;
    request.slices = (uint32_t *)slices;
    request.versions = versions;
    *answer = (fixture_answer){0};
    sg_store_pull(f->store, f->now_ms, f->now_ms + timeout_ms, &request, answer);
    free(versions);
}

void fixture_pull(fixture *f, uint32_t worker, const uint32_t *slices, size_t n, uint64_t version, uint64_t timeout_ms,
                  fixture_answer *answer)
{
    fixture_pull_as(f, worker, FIXTURE_INCARNATION(worker + 1), slices, n, version, timeout_ms, answer);
}

void fixture_wait(fixture *f, fixture_answer *answer)
{
    pthread_mutex_lock(&f->mutex);
    while (!answer->answered)
        pthread_cond_wait(&f->answered, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
}

void fixture_answer_deinit(fixture_answer *answer)
{
    free(answer->values);
    answer->values = NULL;
    answer->n_values = 0;
}

void fixture_stop(fixture *f)
{
    sg_store_fail_pulls(f->store, SG_STOPPED, "stopped");
    fixture_deinit(f);
}

void fixture_expect_refused(fixture *f, const fixture_push *push, sg_status want, const char *text)
{
    sg_error err = {0};
    sg_status got = fixture_send(f, push, NULL, NULL, &err);
    cr_assert_eq(got, want, "got %s: %s", sg_status_name(got), err.message);
    cr_assert_not_null(strstr(err.message, text), "'%s' does not say '%s'", err.message, text);
}
