/* tests/sim/sim_worker.h - the worker side of the simulated world. */
#ifndef SG_TESTS_SIM_WORKER_H
#define SG_TESTS_SIM_WORKER_H

#include "tests/sim/sim.h"
#include "worker/client/session.h"

struct sim_worker {
    uint32_t index, number;
    bool running, killed, joined;
    sg_session *session;
    sim_phase phase;
    uint64_t tick_ms; /* event that is scheduled for it; UINT64_MAX: none */
    uint32_t iterations_left;
    uint32_t group;
    sg_step step;
    uint64_t weight;
    uint64_t push_task, pull_task; /* 0: none under way */
    uint64_t task;                 /* of the phase */
    bool leaves_early;             /* in the middle of its last step */
    uint64_t next_step[SIM_MAX_GROUPS];
    uint64_t pull_version;
    float values[SIM_MAX_SLICES][SIM_SLICE_ELEMS], gradients[SIM_MAX_SLICES][SIM_SLICE_ELEMS];
    sg_status status;       /* how it ended; a goodbye that nobody answered is OK, too, */
    sg_status leave_status; /* and here is what became of it */
    char text[SG_ERROR_MESSAGE_BYTES];
};

void sim_worker_kill(sim *s, sim_worker *worker);
/* The list that every worker declares; *n variables, names static. */
const sg_variable *sim_scenario_variables(const sim *s, size_t *n);

#endif
