/* tests/server/store_fixture.h - a store, driven as the coordinator and workers drive it, without a network. */
#ifndef SG_TESTS_STORE_FIXTURE_H
#define SG_TESTS_STORE_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/store.h"

typedef struct fixture_variable {
    const char *name;
    uint64_t n_elems;
    uint32_t group;
    bool frozen, average;
} fixture_variable;

/* The end of one pull; values of the slices, one after the other. */
typedef struct fixture_answer {
    bool answered;
    unsigned n_answers;
    sg_status status;
    char message[512];
    float *values;
    size_t n_values;
    uint64_t numbers[64];
    size_t n;
} fixture_answer;

/* What becomes of a contribution's bytes when it has to wait. */
typedef enum fixture_lend {
    FIXTURE_HELD, /* they may be held; spoilt as soon as they are not */
    FIXTURE_LENT, /* for the call alone: the store copies */
} fixture_lend;

typedef struct fixture {
    sg_store *store;
    fixture_lend lend;
    size_t kept_beside_bytes;     /* what a message keeps in memory beside its data */
    atomic_uint n_held, n_let_go; /* messages */
    uint64_t sequence;            /* of orders */
    uint64_t slice_bytes;
    uint64_t now_ms;
    pthread_mutex_t mutex; /* guards answers */
    pthread_cond_t answered;
} fixture;

#define FIXTURE_LIFE        77u
#define FIXTURE_SLICE_BYTES 64u
/* Incarnation `life` (1, 2, ...) of a worker as the coordinator numbers them. */
#define FIXTURE_INCARNATION(life) (((uint64_t)1 << 32) + (life))

sg_store_options fixture_options(sg_mode mode, sg_rule rule);
void fixture_init(fixture *f, const sg_store_options *options);
/* Asserts that every message that was held was let go of. */
void fixture_deinit(fixture *f);
/* Ends the pulls that are parked first. */
void fixture_stop(fixture *f);

/* Orders; each asserts that it is acknowledged. */
void fixture_declare(fixture *f, const fixture_variable *variables, size_t n, uint32_t n_ps);
void fixture_admit(fixture *f, uint32_t worker, uint64_t incarnation);
void fixture_attempt(fixture *f, uint64_t attempt, uint64_t incarnation);
void fixture_hyper(fixture *f, const Shardgrad__V1__Hyper *hyper);
void fixture_excuse(fixture *f, uint32_t worker, uint64_t incarnation, const uint64_t *steps, size_t n,
                    uint64_t members);
void fixture_end(fixture *f, sg_status status, const char *reason);
sg_status fixture_order(fixture *f, Shardgrad__V1__OrderRequest *order, sg_error *err);
/* A generation begins, since ps 1 (host:9) was not heard for 5000 ms. */
sg_status fixture_begin(fixture *f, uint64_t generation, sg_error *err);

sg_status fixture_seal(fixture *f, uint64_t attempt, sg_error *err);
void fixture_commit(fixture *f, uint64_t attempt);
sg_status fixture_initialize(fixture *f, uint32_t worker, uint64_t incarnation, uint64_t attempt, uint32_t slice,
                             const float *values, size_t n_values, sg_error *err);
/* Declares, admits workers 0 to n_workers - 1, and commits initial values that are all `value`. */
void fixture_start(fixture *f, const fixture_variable *variables, size_t n, uint32_t n_workers, float value);

/* A push of worker's incarnation FIXTURE_INCARNATION(worker + 1), all slices at the same step; fields may be changed
 * before it is sent. members is a bitmap. */
typedef struct fixture_push {
    uint32_t worker;
    uint64_t incarnation, generation, step, weight, members, iteration, hyper, mark;
    uint32_t group;
    float learning_rate;
    int dtype;
    const uint32_t *slices;
    size_t n_slices;
    const float *values;
    size_t n_values;
    size_t n_bytes;     /* 0: n_values floats; else what lies there is something else */
    size_t split_bytes; /* the data lies in buffers of so many bytes; 0: in one */
} fixture_push;
fixture_push fixture_a_push(uint32_t worker, uint64_t step, uint64_t members, const float *values, size_t n_values);
sg_status fixture_send(fixture *f, const fixture_push *push, uint32_t *non_finite, size_t *n_non_finite, sg_error *err);
sg_status fixture_send_for(fixture *f, const fixture_push *push, sg_store_pushed *pushed, sg_error *err);
/* The answer is there when it returns; n is 0 where the push was only acknowledged. At most 64 slices. */
void fixture_push_pull(fixture *f, const fixture_push *push, fixture_answer *answer);
/* Sends and asserts that it is refused with `want` and a message that has `text` in it. */
void fixture_expect_refused(fixture *f, const fixture_push *push, sg_status want, const char *text);
/* Sends and asserts OK. */
void fixture_push_ok(fixture *f, uint32_t worker, uint64_t step, uint64_t members, const float *values,
                     size_t n_values);

/* A pull by worker's incarnation FIXTURE_INCARNATION(worker + 1). answer must live until it is answered; its deadline
 * is timeout_ms from now. */
void fixture_pull(fixture *f, uint32_t worker, const uint32_t *slices, size_t n, uint64_t version, uint64_t timeout_ms,
                  fixture_answer *answer);
void fixture_pull_as(fixture *f, uint32_t worker, uint64_t incarnation, const uint32_t *slices, size_t n,
                     uint64_t version, uint64_t timeout_ms, fixture_answer *answer);
/* Blocks until it is answered (for tests with threads). */
void fixture_wait(fixture *f, fixture_answer *answer);
void fixture_answer_deinit(fixture_answer *answer);

#endif
