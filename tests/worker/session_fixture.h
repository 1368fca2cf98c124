/* tests/worker/session_fixture.h - a session and the scripted peer that it talks to. The test decides what becomes of
 * every call, and what time it is. */
#ifndef SG_TESTS_WORKER_SESSION_FIXTURE_H
#define SG_TESTS_WORKER_SESSION_FIXTURE_H

#include <criterion/criterion.h>

#include "common/status.h"
#include "worker/client/session.h"

#define PEER_LEASE_MS      3000u
#define PEER_PARK_MS       2000u
#define PEER_SLICE_BYTES   64u
#define PEER_MESSAGE_BYTES 128u
#define PEER_INCARNATION   ((1ull << 32) | 5u)
#define PEER_MAX           512u
#define PEER_MAX_SLICES    64u

typedef struct peer {
    sg_session *session;
    sg_mode mode;
    uint32_t n_ps;
    uint64_t slice_bytes, message_bytes; /* that Hello tells; PEER_* */
    uint64_t staleness;                  /* ssp: that Hello tells */
    uint64_t lag;                        /* ssp: of the next tickets */
    uint64_t backup_workers;             /* that Hello tells */
    uint64_t now_ms;
    sg_session_action calls[PEER_MAX]; /* not answered yet, oldest first */
    size_t n_calls;
    sg_session_action dones[PEER_MAX];
    size_t n_dones;
    sg_session_action logs[PEER_MAX];
    size_t n_logs;
} peer;

void peer_init(peer *p, sg_mode mode, uint32_t n_ps);
void peer_init_connections(peer *p, sg_mode mode, uint32_t n_ps, uint32_t connections);
void peer_deinit(peer *p);
/* Takes the session's actions along. */
void peer_drain(peer *p);
void peer_advance(peer *p, uint64_t ms); /* in ticks of at most 10 ms */

size_t peer_count(const peer *p, sg_session_method method);
/* The oldest call of this method, taken out of the list; it must exist. Freed by sg_session_action_deinit. */
sg_session_action peer_take(peer *p, sg_session_method method);
void peer_answer(peer *p, sg_session_action *take_call, const ProtobufCMessage *reply);
void peer_fail(peer *p, sg_session_action *take_call, sg_status status, const char *text);
/* Answers as a good peer would. */
void peer_answer_well(peer *p, sg_session_action *take_call, uint64_t step);
/* A push_pull: acknowledged, without values. */
void peer_answer_bare(peer *p, sg_session_action *take_call);
/* A push_pull that asks for a ticket: with its values, and this ticket. */
void peer_answer_riding(peer *p, sg_session_action *take_call, uint64_t number);
void peer_answer_all(peer *p, sg_session_method method);

/* The end of this task, which must have come; NULL if not. Valid until the next. */
const sg_session_action *peer_done(const peer *p, uint64_t task);
void peer_expect(const peer *p, uint64_t task, sg_status status);

void peer_join(peer *p);
/* Variables: "a" (40 elements, three slices), "b" (16, one) and "f" (16, frozen). Declared, and version 0 pulled. */
extern const sg_variable peer_variables[3];
void peer_declare(peer *p);
/* Begins the next step, answered with this number. */
sg_step peer_step(peer *p, uint64_t number);
/* All trained slices of peer_variables: [4]. */
extern const uint32_t peer_slices[4];

#endif
