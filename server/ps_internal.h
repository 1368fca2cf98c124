/* server/ps_internal.h - a ps from inside: ps.c has its life, ps_parts.c what it is made of. */
#ifndef SG_SERVER_PS_INTERNAL_H
#define SG_SERVER_PS_INTERNAL_H

#include <stdatomic.h>
#include <uv.h>

#include "common/address.h"
#include "common/heap.h"
#include "common/rpc_client.h"
#include "common/rpc_server.h"
#include "server/coordinator_service.h"
#include "server/mailbox.h"
#include "server/norms.h"
#include "server/parameter_service.h"
#include "server/ps.h"
#include "server/ps_restore.h"
#include "server/ps_save.h"
#include "server/registrar.h"
#include "server/store.h"

struct sg_ps {
    sg_ps_options options;
    char bound[SG_ADDRESS_BYTES];   /* where it listens: perhaps on all interfaces */
    char address[SG_ADDRESS_BYTES]; /* where others reach it */
    bool published;
    uv_thread_t stopper;
    uv_sem_t wakes_stopper;
    uv_loop_t loop;
    uv_timer_t tick;
    sg_heap heap;
    sg_mailbox mailbox;
    sg_mailbox_item stop_item, server_stopped_item;
    atomic_bool stop_posted;
    sg_security *security;
    sg_rpc_client *client;
    sg_rpc_client *norms_client; /* of its own: what comes back takes long, and no lease may wait for it */
    sg_rpc_server *server;
    sg_store *store;
    sg_parameter_service parameter_service;
    sg_coordinator_service *coordinator_service; /* in ps 0 */
    sg_registrar *registrar;
    sg_norms *norms;
    sg_disk_jobs *jobs;
    sg_ps_save *save;
    sg_ps_restore *restore;
    /* Connections that were closed for want of descriptors; on the loop's thread, as what follows. */
    uint64_t n_accept_closed, n_accept_closed_untold;
    sg_log_pace accept_closed_pace;
    /* The end. */
    bool stopping, ending, closed;
    uint64_t stop_by_ms, end_at_ms;
    sg_error end; /* code: what sg_ps_run returns */
};

/* --- ps.c: what may end it; users are the ps, on its loop's thread --- */

void sg_ps_on_coordinator_end(void *ps, sg_status status, const char *text);
void sg_ps_on_registration_failed(void *ps, sg_status status, const char *text);
void sg_ps_on_said_stopping(void *ps, bool told);

/* --- ps_parts.c --- */

/* Client, store, coordinator, checkpoints: all but what others can reach. Errors: EXHAUSTED, and those of
 * sg_checkpoint_open. What was made before an error is left to sg_ps_destroy, as below. */
SG_MUST_USE sg_status sg_ps_parts_create(sg_ps *ps, sg_error *err);
/* Binds its port and serves. Errors: those of sg_rpc_server_create. */
SG_MUST_USE sg_status sg_ps_parts_serve(sg_ps *ps, sg_error *err);
/* Learns its addresses, writes the file that others find it by, and begins to register. */
SG_MUST_USE sg_status sg_ps_parts_announce(sg_ps *ps, sg_error *err);

#endif
