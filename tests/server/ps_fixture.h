/* tests/server/ps_fixture.h - ps on threads of one process, and a worker that speaks the wire by hand. */
#ifndef SG_TESTS_PS_FIXTURE_H
#define SG_TESTS_PS_FIXTURE_H

#include <pthread.h>

#include "common/plan.h"
#include "common/rpc_client.h"
#include "server/ps.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"

/* A ps that runs on a thread. */
typedef struct ps_thread {
    sg_ps *ps;
    pthread_t thread;
    sg_status status;
    sg_error error;
} ps_thread;

/* A configuration with run_dir in a fresh temporary folder; `text` is more of it ("lease_ms: 500\n"). */
sg_config *ps_fixture_config(const char *run_dir, const char *text);
/* A fresh folder under TMPDIR or /tmp; removed by ps_fixture_remove_dir. */
void ps_fixture_make_dir(char out[64]);
void ps_fixture_remove_dir(const char *dir);

/* Creates (asserting that it works) and runs ps `index`; coordinator may be NULL. */
void ps_thread_start(ps_thread *t, const sg_config *config, uint32_t index, const char *coordinator, const sg_log *log);
/* Waits for its end and destroys it; returns what sg_ps_run returned. */
sg_status ps_thread_join(ps_thread *t);

/* One call under way. */
typedef struct wire_call {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done;
    const ProtobufCMessageDescriptor *type; /* of the reply */
    sg_status status;
    sg_error error;
    ProtobufCMessage *reply;
    float *values; /* of its data */
    size_t n_values;
    sg_rpc_pending *pending;
} wire_call;

void wire_call_start(wire_call *call, sg_rpc_channel *channel, const char *path, const ProtobufCMessage *request,
                     const float *values, size_t n_values, const ProtobufCMessageDescriptor *reply_type,
                     uint64_t timeout_ms);
sg_status wire_call_wait(wire_call *call);
void wire_call_deinit(wire_call *call);

#define WIRE_ELEMS 40u

/* One variable of 40 elements, cut into slices of 16. */
typedef struct wire_worker {
    uint32_t index;
    uint64_t incarnation;
    sg_rpc_client *client;
    sg_rpc_channel *coordinator;
    sg_rpc_channel *ps[4];
    sg_plan *plan;
    Shardgrad__V1__TicketResponse *ticket; /* the newest */
} wire_worker;

/* Says hello (asking again while it is told to wait) and connects to every ps. */
void wire_worker_join(wire_worker *w, uint32_t index, const char *coordinator, const char *job);
/* Declares; sends initial values that are all `value` if it is told to. */
void wire_worker_declare(wire_worker *w, float value);
void wire_worker_ticket(wire_worker *w, uint64_t received);
void wire_worker_start_push(wire_worker *w, wire_call *call, uint32_t slice, float value);
/* PushPull of n slices of one ps, all elements `value`. */
void wire_worker_start_push_pull(wire_worker *w, wire_call *call, const uint32_t *slices, size_t n, float value);
/* Pushes all slices. The first status that is not OK. */
sg_status wire_worker_push(wire_worker *w, float value, sg_error *err);
void wire_worker_start_pull(wire_worker *w, wire_call *call, uint32_t slice, uint64_t version, uint64_t timeout_ms);
/* Pulls one slice and asserts that all its values are `want`. */
void wire_worker_expect(wire_worker *w, uint32_t slice, uint64_t version, float want);
void wire_worker_leave(wire_worker *w, uint64_t pushed);
void wire_worker_deinit(wire_worker *w);

#endif
