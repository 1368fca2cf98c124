/* server/norms.h - a ps asks the coordinator for the norms of steps, until it is told (store.h has what they are for).
 *
 * A failed call is made again; what the coordinator refuses for good ends the job on this ps. Questions are sent, and
 * sent again, on the loop's thread; answers close rounds on the client's: there the second phase updates every slice of
 * the group, one after the other, and meanwhile no other reply is taken. So a ps whose second phase lasts for lease_ms,
 * (some GB of values for each second), would lose its lease at every step: give such a job more ps, or
 * a longer lease. */
#ifndef SG_SERVER_NORMS_H
#define SG_SERVER_NORMS_H

#include "common/rpc_client.h"
#include "server/mailbox.h"
#include "server/registrar.h"
#include "server/store.h"

typedef struct sg_norms sg_norms;

typedef struct sg_norms_options {
    uint32_t ps;
    uint64_t timeout_ms; /* of a call; longer than the coordinator parks one */
    sg_store *store;
    sg_registrar *const
        *registrar; /* knows the coordinator's address and this ps's life; there before any question is */
    sg_mailbox *mailbox;
    sg_rpc_client *client; /* whose thread it has for itself: an answer is worked on there, which may take long */
    const sg_log *log;
} sg_norms_options;

sg_norms *sg_norms_create(const sg_norms_options *options);
/* After the client and the mailbox have nothing of it any more. NULL is fine. */
void sg_norms_destroy(sg_norms *norms);

/* Of sg_store_options.on_norms; any thread. */
void sg_norms_ask(sg_norms *norms, const sg_store_norms *what);
/* Asks again where that is due. Call it every 100 ms or so. */
void sg_norms_tick(sg_norms *norms, uint64_t now_ms);
/* Nothing is sent any more. */
void sg_norms_close(sg_norms *norms);

#endif
