/* tests/rpc/fixture.h - a server that echoes and parks, a client, and calls that are waited for. */
#ifndef SG_TESTS_RPC_FIXTURE_H
#define SG_TESTS_RPC_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/rpc_client.h"
#include "common/rpc_server.h"
#include "shardgrad/v1/parameter.pb-c.h"

#define ECHO      "/shardgrad.v1.ParameterService/Push" /* answers a PullResponse with the request's data */
#define PARK      "/shardgrad.v1.ParameterService/Pull" /* puts the call on the parked list, watched */
#define FAIL_WITH "/shardgrad.test.Failing/Call"        /* fails with the status whose number is request.worker */
#define OVERSIZE  "/shardgrad.test.Oversize/Call"       /* answers request.worker bytes of data */

#define MESSAGE_BYTES ((uint64_t)4 << 20)
#define PARKED_MAX    64

typedef struct service {
    sg_rpc_server *server;
    char address[64];
    uint64_t message_bytes;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    sg_rpc_call *parked[PARKED_MAX]; /* guarded by mutex, as n_parked, n_gone and closed are */
    size_t n_parked;
    size_t n_gone; /* notices that found their call parked, and failed it */
    bool closed;   /* what comes now is failed instead of parked */
    atomic_size_t n_echoed, n_lent, n_released;
    atomic_uint_least64_t deadline_ms; /* of the call that was parked last */
    char peer[64];
} service;

/* address: host:port, NULL for 127.0.0.1 and any port. Fails the test where the server cannot be made. */
void service_start(service *s, const char *address, uint32_t threads);
/* The same with tokens or TLS: ECHO needs a worker, FAIL_WITH an observer, everything else an admin. */
void service_start_secured(service *s, const sg_security *security, const sg_log *log);
/* The same with what these options say of limits and the log. */
void service_start_limited(service *s, const sg_rpc_server_options *limits);
/* Fails what is parked, now and later; stops and destroys the server; checks that every loan was released. */
void service_stop(service *s, uint64_t grace_ms);
void service_deinit(service *s); /* after the server was stopped and destroyed by hand */
void service_close(service *s);  /* fails what is parked, now and later */
void service_wait_parked(service *s, size_t n);
void service_wait_gone(service *s, size_t n);
/* Takes out and answers one parked call with an empty PullResponse; false if there is none. */
bool service_answer_one(service *s);

typedef struct outcome {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t n_done;
    sg_status status;
    sg_error error;
    uint8_t *data;
    size_t data_bytes;
} outcome;

#define OUTCOME_INIT                                                                                                   \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                                        \
    }

void outcome_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply);
void outcome_wait(outcome *o, size_t n_done);
void outcome_deinit(outcome *o);

sg_rpc_client *client_make(uint64_t message_bytes);
/* A PushRequest with worker and these data, copied; the copy's release counts in *released. */
sg_wire_message *push_message(uint32_t worker, const void *data, size_t n_bytes, atomic_size_t *released);
/* Calls and waits for the end. */
sg_status call_and_wait(sg_rpc_channel *channel, const char *path, sg_wire_message *take_request, uint64_t timeout_ms,
                        outcome *o);
/* Pushes 1000 bytes to the echo and checks what comes back. */
void check_echo(sg_rpc_channel *channel);
/* A port of 127.0.0.1 that nobody listens on. */
uint16_t unused_port(void);

#endif
