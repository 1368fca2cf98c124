/* server/ps.h - one ps: store, services, registration and, in ps 0, the coordinator, wired together.
 *
 * No process-wide state: a process may run any number of them, each on a thread of its own. Threads of one ps: the
 * one that calls sg_ps_run is its libuv loop (leases, ticks, coordinator, orders, registration); rpc_threads serve
 * calls; one more polls replies to its own calls, and one waits to stop the server. */
#ifndef SG_SERVER_PS_H
#define SG_SERVER_PS_H

#include "common/config.h"
#include "common/log.h"
#include "common/rpc_faults.h"

typedef struct sg_ps sg_ps;

typedef struct sg_ps_options {
    const sg_config *config; /* must outlive the ps */
    uint32_t index;
    const sg_log *log;
    /* host:port of ps 0, asked for again until it is known (a local peer's port 0 is in run_dir/address/ps-0); NULL:
     * from the config. */
    const char *coordinator;
    sg_rpc_faults *faults; /* of tests alone; NULL: none */
} sg_ps_options;

/* Binds the port and serves. Errors: CONFIG (index out of range, address in use, does not resolve),
 * EXHAUSTED (no thread, no event loop). */
SG_MUST_USE sg_status sg_ps_create(const sg_ps_options *options, sg_ps **ps, sg_error *err);
/* "127.0.0.1:40123": the address under which it is reached. Valid until destroy. */
const char *sg_ps_address(const sg_ps *ps);
/* Runs until the job is over or sg_ps_stop. OK: the job ended well, or it was told to stop. Errors: UNAVAILABLE (the
 * coordinator did not come within start_timeout_ms, or was lost), CONFIG (refused), PEER_LOST (the job failed). */
SG_MUST_USE sg_status sg_ps_run(sg_ps *ps, sg_error *err);
/* Makes sg_ps_run return within shutdown_grace_ms. Any thread; not a signal handler. */
void sg_ps_stop(sg_ps *ps);
/* After sg_ps_run returned (or was never called). NULL is fine. */
void sg_ps_destroy(sg_ps *ps);

#endif
