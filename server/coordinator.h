/* server/coordinator.h - the part of ps 0 that decides: who takes part, which step comes next, when the job is over.
 *
 * A pure state machine: requests, replies to its orders and the time go in, actions come out. No socket, thread or
 * clock. proto/README.md has the rules it follows, and the test of each.
 *
 * Threads: none; the owner serialises. Drain the actions after every call:
 *     for (sg_coordinator_action a; sg_coordinator_next_action(c, &a); sg_coordinator_action_deinit(&a)) perform(&a);
 */
#ifndef SG_SERVER_COORDINATOR_H
#define SG_SERVER_COORDINATOR_H

#include "common/checkpoint.h"
#include "common/config.h"
#include "common/log.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"

typedef struct sg_coordinator sg_coordinator;

typedef enum sg_coordinator_action_kind {
    SG_COORDINATOR_REPLY,  /* answer `call` with `body` */
    SG_COORDINATOR_FAIL,   /* answer `call` with `status` and `text` */
    SG_COORDINATOR_ORDER,  /* send `body` (PsDeclareRequest or OrderRequest) to `ps` at `address`, once; report how it
                              went by sg_coordinator_on_ordered. There is at most one order under way per ps */
    SG_COORDINATOR_SAVE,   /* complete the checkpoint `manifest`; say how it went by sg_coordinator_on_written */
    SG_COORDINATOR_RECORD, /* choose what the next generation, above `generation`, starts from, and record it; say by
                              sg_coordinator_on_recorded */
    SG_COORDINATOR_LOG,    /* log `event` with fields `text` at `level` */
    SG_COORDINATOR_END,    /* the job is over and every ps that lives knows it: ps 0 may exit with `status`, `text` */
} sg_coordinator_action_kind;

typedef struct sg_coordinator_action {
    sg_coordinator_action_kind kind;
    void *call;             /* REPLY, FAIL */
    ProtobufCMessage *body; /* REPLY, ORDER; freed by action_deinit, or by sg_wire_head_free where it was taken */
    uint32_t ps;            /* ORDER */
    uint64_t life;          /* ORDER: life of the ps that is meant; to be handed back */
    char *address;          /* ORDER */
    sg_status status;       /* FAIL, END */
    sg_log_level level;     /* LOG */
    const char *event;      /* LOG; static storage */
    char *text;             /* FAIL, LOG, END */
    sg_checkpoint_manifest *manifest; /* SAVE; freed by action_deinit */
    sg_checkpoint_set current;        /* SAVE: what this generation started from; it is not to be removed */
    uint64_t generation;              /* RECORD: the highest that anybody is known to have been in */
    uint64_t own;                     /* RECORD: the coordinator's own newest; 0: it has just been started */
    sg_checkpoint_set damaged; /* RECORD: what it starts from is to be older than this one; generation 0: any will do */
    sg_checkpoint_change
        *changes;       /* RECORD: [n_changes] what the next generation has other than the cluster file; freed */
    uint32_t n_changes; /* by action_deinit. Where own is 0: as the newest record or the checkpoint says */
} sg_coordinator_action;

bool sg_coordinator_next_action(sg_coordinator *coordinator, sg_coordinator_action *action);
void sg_coordinator_action_deinit(sg_coordinator_action *action);

/* config must outlive the coordinator: it is the authority on mode, rule and hyper-parameters. */
sg_coordinator *sg_coordinator_create(const sg_config *config);
void sg_coordinator_destroy(sg_coordinator *coordinator); /* NULL is fine; parked calls are forgotten */

/* Requests. `call` is the caller's name for it, handed back in the action that answers it, in this call or a later
 * one. Requests are borrowed. A call that was parked for park_ms is failed WAITING; a repeat of a parked request parks
 * again, beside the first. */
void sg_coordinator_on_register(sg_coordinator *coordinator, uint64_t now_ms,
                                const Shardgrad__V1__RegisterRequest *request, void *call);
void sg_coordinator_on_hello(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__HelloRequest *request,
                             void *call);
void sg_coordinator_on_declare(sg_coordinator *coordinator, uint64_t now_ms,
                               const Shardgrad__V1__DeclareRequest *request, void *call);
void sg_coordinator_on_initialized(sg_coordinator *coordinator, uint64_t now_ms,
                                   const Shardgrad__V1__InitializedRequest *request, void *call);
void sg_coordinator_on_ticket(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__TicketRequest *request,
                              void *call);
void sg_coordinator_on_heartbeat(sg_coordinator *coordinator, uint64_t now_ms,
                                 const Shardgrad__V1__HeartbeatRequest *request, void *call);
void sg_coordinator_on_leave(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__LeaveRequest *request,
                             void *call);
void sg_coordinator_on_norms(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__NormsRequest *request,
                             void *call);
void sg_coordinator_on_save(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__SaveRequest *request,
                            void *call);
void sg_coordinator_on_status(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__StatusRequest *request,
                              void *call);

void sg_coordinator_on_set(sg_coordinator *coordinator, uint64_t now_ms, const Shardgrad__V1__SetRequest *request,
                           void *call);

/* Has the job ended? Then every request is answered with that, and whoever made it counts as told; so one whose answer
 * would be thrown away must not be made. */
bool sg_coordinator_is_over(const sg_coordinator *coordinator);

/* The client of a parked call has gone: it is forgotten, no action answers it. */
void sg_coordinator_forget(sg_coordinator *coordinator, void *call);

/* How an order went; response: the answer where status is OK, borrowed, may be NULL. UNAVAILABLE, TIMEOUT and
 * NOT_READY: it is sent again, by a later tick. */
void sg_coordinator_on_ordered(sg_coordinator *coordinator, uint64_t now_ms, uint32_t ps, uint64_t life,
                               sg_status status, const char *message, const Shardgrad__V1__OrderResponse *response);

/* How the manifest of a checkpoint was written. */
void sg_coordinator_on_written(sg_coordinator *coordinator, uint64_t now_ms, sg_checkpoint_set set, sg_status status,
                               const char *message);

/* What came of RECORD. `why` is read where status is not OK. FENCED: another coordinator has recorded a later one. */
typedef struct sg_coordinator_recorded {
    sg_status status;
    const char *why;
    uint64_t generation;
    const sg_checkpoint_manifest *manifest; /* of what it starts from; NULL: nothing */
} sg_coordinator_recorded;
void sg_coordinator_on_recorded(sg_coordinator *coordinator, uint64_t now_ms, const sg_coordinator_recorded *recorded);

/* Leases, parked calls, orders to repeat, who is waited for. Call every 100 ms or so: a call that comes late extends
 * the leases by its own lateness. */
void sg_coordinator_tick(sg_coordinator *coordinator, uint64_t now_ms);

/* This ps was told to stop (SIGTERM): no more steps are begun; where the job makes checkpoints those that were are
 * awaited for half of shutdown_grace_ms, and one is made; then every ps and worker is told STOPPED; END follows. */
void sg_coordinator_stop(sg_coordinator *coordinator, uint64_t now_ms);

#endif
