/* tests/sim/sim_worker.h - the worker side of the simulated world. */
#ifndef SG_TESTS_SIM_WORKER_H
#define SG_TESTS_SIM_WORKER_H

#include "tests/sim/sim.h"
#include "worker/client/session.h"

#define SIM_MAX_OPS (4 * SIM_MAX_SLICES)

/* A task of the session that moves gradients or values. */
typedef struct sim_op {
    uint64_t task;
    uint32_t group;
    uint32_t slices[SIM_MAX_SLICES];
    size_t n;
    bool pull_after; /* a push of async mode, after which the newest values are wanted */
} sim_op;

struct sim_worker {
    uint32_t index, number;
    bool running, killed, joined;
    bool came_again; /* it was cut off from a ps, was given up for lost, and goes on as a new life: another process */
    sg_session *session;
    sim_phase phase;
    uint64_t tick_ms; /* event that is scheduled for it; UINT64_MAX: none */
    uint32_t iterations_left;
    uint32_t group;
    /* how its trainer goes about it */
    bool push_pulls;   /* instead of pushing, then pulling */
    bool in_pieces;    /* slice after slice, the last one first */
    bool values_later; /* the next step begins while values are still on their way */
    sg_step step;
    uint64_t weight;
    sim_op ops[SIM_MAX_OPS]; /* [n_ops] under way */
    uint32_t n_ops;
    uint64_t task;     /* of the phase */
    bool leaves_early; /* in the middle of its last step */
    uint64_t next_step[SIM_MAX_GROUPS];
    float values[SIM_MAX_SLICES][SIM_SLICE_ELEMS], gradients[SIM_MAX_SLICES][SIM_SLICE_ELEMS];
    sg_status status;       /* how it ended; a goodbye that nobody answered is OK, too, */
    sg_status leave_status; /* and here is what became of it */
    char text[SG_ERROR_MESSAGE_BYTES];
};

void sim_worker_kill(sim *s, sim_worker *worker);
void sim_worker_end(sim *s, sim_worker *worker, sg_status status, const char *text);
/* Does what the session says. */
void sim_worker_advance(sim *s, sim_worker *worker);

void sim_trainer_choose(sim *s, sim_worker *worker);
/* What was under way has ended, because the job went back or it was too late for a step: it drops what it has, and
 * goes on with the step that it is given. */
void sim_trainer_resume(sim *s, sim_worker *worker);
/* A task has ended well. */
void sim_trainer_done(sim *s, sim_worker *worker, const sg_session_action *action);
/* The list that every worker declares; *n variables, names static. */
const sg_variable *sim_scenario_variables(const sim *s, size_t *n);

#endif
