/* tests/server/coordinator_fixture.h - a coordinator, driven as ps and workers drive it, without a network. */
#ifndef SG_TESTS_COORDINATOR_FIXTURE_H
#define SG_TESTS_COORDINATOR_FIXTURE_H

#include "server/coordinator.h"

#define RIG_MAX_PS     4u
#define RIG_MAX_ORDERS 256u

/* How a call ended; owned by the rig. */
typedef struct rig_call {
    unsigned n_answers;
    sg_status status;
    char text[SG_ERROR_MESSAGE_BYTES];
    ProtobufCMessage *body; /* where status is OK; owned by the rig */
} rig_call;

typedef struct rig_order {
    uint64_t life, sequence;
    ProtobufCMessage *body;
} rig_order;

typedef struct rig {
    sg_config *config;
    sg_coordinator *coordinator;
    const char *job; /* that rig_set and rig_save mean; NULL: whichever it is */
    uint64_t now_ms;
    uint64_t tick_ms;
    uint32_t every[4], n_every;                   /* that declarations say */
    bool acknowledge;                             /* orders are acknowledged as they come */
    bool silent[RIG_MAX_PS];                      /* orders to this ps are answered UNAVAILABLE */
    bool pending[RIG_MAX_PS];                     /* an order waits for rig_acknowledge */
    rig_order orders[RIG_MAX_PS][RIG_MAX_ORDERS]; /* all that were sent */
    uint32_t n_orders[RIG_MAX_PS];
    uint64_t lives[RIG_MAX_PS];
    Shardgrad__V1__OrderResponse acknowledgement[RIG_MAX_PS]; /* with which each ps answers orders */
    bool record_due;                                          /* a generation is to be recorded: done at once, */
    bool keeps_records;                                       /* or by rig_record */
    sg_checkpoint_set damaged;                                /* than which it is to be older */
    sg_checkpoint_change *record_changes;                     /* [n_record_changes] that it is to have */
    uint32_t n_record_changes;
    uint64_t n_recorded;                  /* generations */
    const sg_checkpoint_manifest *newest; /* what the next one starts from; NULL: nothing */
    unsigned n_ends;
    sg_status end_status;
    char end_text[SG_ERROR_MESSAGE_BYTES];
    unsigned n_manifests;                        /* that were to be written, */
    sg_checkpoint_manifest manifest;             /* the newest */
    Shardgrad__V1__SaveReport saved[RIG_MAX_PS]; /* what each ps says with its next registrations, if `number` is set */
    char *log;                                   /* "event fields\n" of every event so far */
    ProtobufCMessage **bodies;                   /* of answers */
    size_t n_bodies;
    rig_call **calls;
    size_t n_calls;
} rig;

/* Settings of a job of two ps. */
extern const char *const rig_two_ps[2];
/* `settings` are "key=value" as for --set, NULL-terminated; a key may be NULL for none. Times: lease 5 s, park 2 s. */
void rig_init(rig *r, const char *const settings[]);
void rig_deinit(rig *r); /* asserts that no action was left */

/* Answers what is to be recorded. */
void rig_record(rig *r, sg_status status, const char *why);
/* Lets so much time pass, with a tick every 100 ms. */
void rig_pass(rig *r, uint64_t ms);
/* The same, with heartbeats of these incarnations (0-terminated) and registrations of all ps every second. */
void rig_live(rig *r, uint64_t ms, const uint64_t *incarnations);

/* Registers ps `ps` under life 100 + ps, at "host:PS", with the rig's own settings. */
rig_call *rig_register(rig *r, uint32_t ps);
rig_call *rig_register_as(rig *r, uint32_t ps, uint64_t life, const char *address);
void rig_register_all(rig *r);
rig_call *rig_report(rig *r, uint32_t ps, const Shardgrad__V1__PsReport *report, bool stopping);
/* Answers the order that waits. */
void rig_acknowledge(rig *r, uint32_t ps, sg_status status, const char *message);

rig_call *rig_hello(rig *r, uint32_t worker, uint64_t life);
/* A hello of this rig's job, to be changed; it points into the rig. */
Shardgrad__V1__HelloRequest rig_hello_request(const rig *r, uint32_t worker, uint64_t life);
rig_call *rig_leave_with(rig *r, const Shardgrad__V1__LeaveRequest *request);
rig_call *rig_hello_with(rig *r, const Shardgrad__V1__HelloRequest *request);
/* Hello that is answered; returns the incarnation. */
uint64_t rig_join(rig *r, uint32_t worker, uint64_t life);
/* "weight" (784x512) of group 0 and "critic" (784) of group 1. */
rig_call *rig_declare(rig *r, uint64_t incarnation);
rig_call *rig_declare_list(rig *r, uint64_t incarnation, Shardgrad__V1__Variable **variables, size_t n);
rig_call *rig_initialized(rig *r, uint64_t incarnation, uint64_t attempt);
rig_call *rig_ticket(rig *r, uint64_t incarnation, uint32_t group, uint64_t received, uint64_t finished);
rig_call *rig_ticket_for(rig *r, uint64_t incarnation, uint32_t group, uint64_t received, uint64_t finished,
                         uint64_t iteration);
rig_call *rig_ticket_with(rig *r, const Shardgrad__V1__TicketRequest *request);
rig_call *rig_heartbeat(rig *r, uint64_t incarnation);
rig_call *rig_heartbeat_with(rig *r, const Shardgrad__V1__HeartbeatRequest *request);
/* pushed: of group 0; UINT64_MAX: no progress is given. */
rig_call *rig_leave(rig *r, uint64_t incarnation, uint64_t pushed);
/* It began to push up to a step that it did not push whole. */
rig_call *rig_leave_begun(rig *r, uint64_t incarnation, uint64_t pushed, uint64_t begun);
/* With a report of the last step. */
rig_call *rig_leave_report(rig *r, uint64_t incarnation, uint64_t pushed, float loss, uint64_t examples);
rig_call *rig_save(rig *r, uint64_t id);
/* From ps `ps`, under its life of now. */
rig_call *rig_norms(rig *r, uint32_t ps, uint32_t group, uint64_t step, double *squares, size_t n_squares);
/* The Cut that ps 0 was ordered last; asserts that there is one. */
const Shardgrad__V1__Cut *rig_cut(const rig *r);
uint32_t rig_n_cuts(const rig *r); /* that ps 0 was ordered */
/* All ps report that they have written their part of the newest Cut. */
void rig_report_saved(rig *r);
/* The manifest that was to be written is. */
void rig_written(rig *r, sg_status status, const char *message);
/* Cut, reports, manifest: all of it. Asserts that one was cut before `iteration`. */
void rig_complete(rig *r, uint64_t iteration);
const Shardgrad__V1__StatusResponse *rig_status(rig *r);
/* Of one key. */
rig_call *rig_set_all(rig *r, uint64_t request, Shardgrad__V1__Setting **list, size_t n);
rig_call *rig_set(rig *r, uint64_t request, const char *key, const char *value);

/* All ps registered, `n` workers joined (incarnations[n]), declared and initialized by the first. */
void rig_start(rig *r, uint32_t n, uint64_t *incarnations);

/* What the answers say; each asserts that there is one and that it is OK. */
const Shardgrad__V1__TicketResponse *rig_granted(const rig_call *call);
uint64_t rig_saved_at(const rig_call *save); /* the iteration of the checkpoint that a Save was answered with */
bool rig_waits(const rig_call *call);        /* not answered yet */
/* Asserts the failure and that its text contains `words`. */
void rig_failed(const rig_call *call, sg_status status, const char *words);
/* Orders of a kind (NOT_SET: declarations) that were sent to a ps, repeats included; the newest is *last (may be
 * NULL). */
uint32_t rig_ordered(const rig *r, uint32_t ps, Shardgrad__V1__OrderRequest__OrderCase kind,
                     const Shardgrad__V1__OrderRequest **last);
bool rig_logged(const rig *r, const char *words);

#endif
