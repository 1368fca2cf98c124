/* tests/worker/fake_ps.h - one ps for one worker at a time, that does as the test says: the odd behaviour which a real
 * one never shows. A push is added to the values; nothing is checked. */
#ifndef SG_TESTS_WORKER_FAKE_PS_H
#define SG_TESTS_WORKER_FAKE_PS_H

#include <pthread.h>

#include "common/plan.h"
#include "common/rpc_server.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"

#define FAKE_PS_LEASE_MS 600u
#define FAKE_PS_HELD     64u

typedef struct fake_ps {
    sg_rpc_server *server;
    char address[64];
    pthread_mutex_t mutex;
    /* what it is to do; set through fake_ps_set */
    bool async, hold_pulls, hold_push_pulls, hold_tickets, short_pulls, bare_answers, no_rides;
    sg_status refuse_hello, refuse_push;
    /* what it has seen */
    uint32_t n_hellos, n_leaves, n_heartbeats, n_pulls, n_push_pulls, n_tickets;
    uint64_t last_weight, reported_examples;
    /* its values */
    sg_plan *plan;
    float *values;
    uint64_t *first; /* [n_slices] where a slice begins in values */
    uint64_t *versions;
    sg_rpc_call *held[FAKE_PS_HELD]; /* not answered */
    size_t n_held;
} fake_ps;

fake_ps *fake_ps_create(void);
void fake_ps_destroy(fake_ps *ps);
/* Changes a field under the lock. */
#define fake_ps_set(ps, field, value)                                                                                  \
    do {                                                                                                               \
        pthread_mutex_lock(&(ps)->mutex);                                                                              \
        (ps)->field = (value);                                                                                         \
        pthread_mutex_unlock(&(ps)->mutex);                                                                            \
    } while (0)
uint64_t fake_ps_get(fake_ps *ps, const uint64_t *field);
uint32_t fake_ps_count(fake_ps *ps, const uint32_t *field);
/* Waits until this many calls are held. */
void fake_ps_await_held(fake_ps *ps, size_t n);
/* Answers what is held with UNAVAILABLE, and holds nothing from then on. */
void fake_ps_refuse_held(fake_ps *ps);

#endif
