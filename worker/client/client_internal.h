/* worker/client/client_internal.h - what the files of the client share. Nobody else includes it.
 *
 *     client.c        lock and unlock, which carry out what the session decides; declare, close
 *     client_open.c   open; the memory and the threads of a client
 *     client_steps.c  steps: begin and end
 *     client_pieces.c push and pull of variables and of parts of them
 *     client_loop.c   the thread that has a clock
 *     op.c            operations under way and waiting for them
 *     transport.c     calls: buffers lent, replies copied
 *
 * Threads. User threads, the loop thread and the pollers of two RPC clients (control: hello, heartbeats, leave; data:
 * all else) all do the same: lock, tell the session something, unlock. Unlocking takes the session's actions along and
 * carries them out without the lock, after it has woken who waits for an op that was completed. The mutex is the only
 * lock; it is never held over a call, a copy or a log line.
 *
 * Ops, calls and what they are made of are recycled: steps that follow each other allocate nothing. */
#ifndef SG_WORKER_CLIENT_CLIENT_INTERNAL_H
#define SG_WORKER_CLIENT_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <uv.h>

#include "common/log.h"
#include "common/pool.h"
#include "common/rpc_client.h"
#include "worker/client/session.h"
#include "worker/client/slots.h"

/* Ops that one unlock wakes after unlocking; any more are woken before. */
#define SG_CLIENT_MAX_WOKEN 8u
/* Of sg_op.n_lent: the op waits for nothing else. */
#define SG_OP_AWAITS_LENT (1u << 31)

/* One sending of a request, from the session's word to the end of the transport's callback. */
typedef struct sg_client_call {
    TAILQ_ENTRY(sg_client_call) link; /* in its op; guarded by the mutex */
    TAILQ_ENTRY(sg_client_call) todo; /* in the list of what is to be started, or cancelled; of one thread */
    sg_client *client;
    sg_op *op;               /* NULL: the session's own */
    sg_rpc_channel *channel; /* one reference; NULL: to be looked up */
    sg_session_action action;
    /* guarded by the mutex */
    uint32_t n_references; /* who starts it, the callback, who cancels it */
    bool cancel_wanted;
    sg_rpc_pending *pending;
} sg_client_call;
TAILQ_HEAD(sg_client_calls, sg_client_call);

struct sg_op {
    LIST_ENTRY(sg_op) link; /* under way, or free */
    sg_client *client;
    uint64_t task;
    uint32_t group;
    bool of_group; /* moves values or gradients of `group` */
    /* guarded by the mutex */
    struct sg_client_calls calls; /* under way */
    bool done;                    /* the session has ended its task */
    bool complete;                /* and all calls have ended and all buffers are back */
    sg_step step;
    sg_error error;           /* code OK: it ended well */
    pthread_cond_t completed; /* as old as the memory of the op: a late signal finds it */
    /* Pieces of its buffers that the transport holds. Whoever gives the last one back while AWAITS_LENT is set wakes
     * the loop, which completes the op. */
    atomic_uint n_lent;
};

typedef struct sg_client_group {
    uint32_t *slices; /* those that are trained: [n_slices] */
    size_t n_slices;
    sg_step step; /* as it was last seen: begun, and not finished */
    bool begun;
    bool used;         /* a step of it was, once; */
    bool behind;       /* and none since the client came back: what was known of its steps counts no more */
    uint32_t n_moving; /* ops of the group that are not complete */
} sg_client_group;

/* Where the bytes of a slice lie. */
typedef struct sg_client_place {
    float *value, *gradient;
    size_t n_bytes;
} sg_client_place;

struct sg_client {
    /* immutable after open */
    sg_log log;
    sg_config *config;
    char *coordinator; /* NULL: as the config says */
    uint32_t worker;
    bool check_finite;
    uint64_t start_timeout_ms;
    sg_security *security;
    sg_rpc_client *control, *data;
    uint32_t n_connections;
    sg_pool *pool;
    /* guarded by the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* an op was completed, the last thread has carried out its actions */
    sg_session *session;
    sg_rpc_channel *control_channel; /* made anew for a Hello where the address of ps 0 has changed */
    sg_rpc_channel *coordinator_channel, **ps_channels; /* [n_ps][n_connections] */
    LIST_HEAD(, sg_op) ops, free_ops;
    sg_slots ops_by_task;
    pthread_cond_t *woken[SG_CLIENT_MAX_WOKEN]; /* to be signalled after unlocking: [n_woken] */
    uint32_t n_woken;
    bool interrupted, closing, started;
    bool resuming;                 /* a thread brings the client back: joins and declares again */
    uint64_t n_resumes, n_resumed; /* how often that was begun, and ended well */
    sg_error back;                 /* why it was begun last */
    uint32_t n_performing;         /* threads that carry out actions */
    uint64_t pushed_bytes, pulled_bytes, non_finite;
    sg_log_pace non_finite_pace;
    uint64_t timer_ms; /* when the loop thread looks next */
    /* written by declare, before anything uses them */
    sg_variable *variables;
    size_t n_variables;
    sg_client_place *places; /* [slices of the plan] */
    sg_client_group *groups;
    uint32_t n_groups;
    /* the loop */
    uv_loop_t loop;
    uv_timer_t timer;
    uv_async_t wake;
    uv_thread_t thread;
    atomic_bool stopping;
    /* threads that are giving a buffer back and may still touch the client */
    atomic_uint n_releasing;
};

/* --- client.c --- */

void sg_client_lock(sg_client *client);
/* Unlocks, then carries out what the session has decided. */
void sg_client_unlock(sg_client *client);
/* With the lock held: INVALID before declare, CANCELLED after an interrupt, or that with which all has failed. */
SG_MUST_USE sg_status sg_client_usable(sg_client *client, sg_error *err);
/* With the lock held: until no thread is in the middle of what the session decided before. */
void sg_client_performing_await(sg_client *client);
void sg_client_variables_forget(sg_client *client);

/* --- client_open.c --- */

/* Ends what is under way, stops the threads, frees. */
void sg_client_destroy(sg_client *client);

/* --- client_steps.c. All with the lock held --- */

/* sg_session_push or sg_session_push_pull. */
typedef sg_status (*sg_client_push_fn)(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, const sg_step *step,
                                       uint64_t weight, const uint32_t *slices, size_t n, uint64_t *task,
                                       sg_error *err);
SG_MUST_USE sg_status sg_client_push_begin(sg_client *client, sg_client_push_fn push, const sg_step *step,
                                           uint64_t weight, const uint32_t *slices, size_t n, sg_op **op,
                                           sg_error *err);
sg_op *sg_client_pull_begin(sg_client *client, uint32_t group, uint64_t version, const uint32_t *slices, size_t n);
/* For all but begin_step: of a group whose step came to nothing, if another thread has brought the client back since.
 */
SG_MUST_USE sg_status sg_client_step_check(sg_client *client, const sg_step *step, sg_error *err);

/* --- client_loop.c --- */

SG_MUST_USE sg_status sg_client_loop_start(sg_client *client, sg_error *err);
void sg_client_loop_stop(sg_client *client);

/* --- op.c --- */

/* With the lock held. The task may have ended already: its DONE is found by the next unlock. */
sg_op *sg_op_create(sg_client *client, uint64_t task);
/* The memory of ops that were destroyed. */
void sg_ops_free(sg_client *client);
sg_op *sg_op_find(const sg_client *client, uint64_t task);
/* With the lock held: completes it if nothing is under way any more. */
void sg_op_settle(sg_op *op);
/* Wakes who waits for it, if it waits for what was not handed over. With the lock held. */
void sg_op_note_lack(sg_op *op);
bool sg_op_is_complete(sg_op *op);
/* Waits without a limit, then destroys; returns how it ended. *step (may be NULL) gets a ticket. */
SG_MUST_USE sg_status sg_op_finish(sg_op *op, sg_step *step, sg_error *err);

#endif
