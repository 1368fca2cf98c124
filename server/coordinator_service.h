/* server/coordinator_service.h - the coordinator on the network: rpc calls go to the loop of ps 0, through the
 * coordinator, and back; its orders go out to every ps, its own included.
 *
 * Threads: rpc threads take requests apart and post them, and ask for tickets that ride along with a push; everything
 * else happens on the loop's thread. */
#ifndef SG_SERVER_COORDINATOR_SERVICE_H
#define SG_SERVER_COORDINATOR_SERVICE_H

#include "common/checkpoint.h"
#include "common/config.h"
#include "common/rpc_client.h"
#include "common/rpc_server.h"
#include "server/coordinator.h"
#include "server/mailbox.h"
#include "shardgrad/v1/coordinator.pb-c.h"

typedef struct sg_coordinator_service sg_coordinator_service;

typedef struct sg_coordinator_service_options {
    const sg_config *config;
    sg_mailbox *mailbox;
    sg_rpc_client *client; /* for orders */
    const sg_log *log;
    /* The job is over and everybody knows it. On the loop's thread, at most once. */
    void (*on_end)(void *user, sg_status status, const char *text);
    /* The checkpoint is to be completed: sg_coordinator_service_written says how it went. On the loop's thread. */
    void (*complete)(void *user, const sg_checkpoint_manifest *manifest, sg_checkpoint_set current);
    /* SG_COORDINATOR_RECORD, which is borrowed; on the loop's thread. */
    void (*record)(void *user, const sg_coordinator_action *action);
    void *user;
} sg_coordinator_service_options;

sg_coordinator_service *sg_coordinator_service_create(const sg_coordinator_service_options *options);

/* Where ps 0, which is this process, takes its orders: others may reach it by another address. Before it registers. */
void sg_coordinator_service_set_own(sg_coordinator_service *service, const char *address);

#define SG_COORDINATOR_SERVICE_METHODS 11
/* The methods to serve; the service must outlive the server. */
void sg_coordinator_service_methods(sg_coordinator_service *service,
                                    sg_rpc_method methods[SG_COORDINATOR_SERVICE_METHODS]);

/* What a ticket request gets that came with a push, freed by sg_wire_head_free; NULL if nothing can be
 * had at once: then it is to be asked by a call of its own. Any thread; `user` is the service. */
Shardgrad__V1__TicketResponse *sg_coordinator_service_ticket(void *user, const Shardgrad__V1__TicketRequest *wanted);
/* What came of `record`. */
void sg_coordinator_service_recorded(sg_coordinator_service *service, uint64_t now_ms,
                                     const sg_coordinator_recorded *recorded);
void sg_coordinator_service_tick(sg_coordinator_service *service, uint64_t now_ms);
/* On the loop's thread. */
void sg_coordinator_service_written(sg_coordinator_service *service, uint64_t now_ms, sg_checkpoint_set set,
                                    sg_status status, const char *message);
/* This ps was told to stop; on_end follows. */
void sg_coordinator_service_stop(sg_coordinator_service *service, uint64_t now_ms);
/* Answers every call that waits, and those that still come, STOPPED. The loop runs no more. */
void sg_coordinator_service_close(sg_coordinator_service *service);
/* After the server, the client and the mailbox have nothing of it any more. NULL is fine. */
void sg_coordinator_service_destroy(sg_coordinator_service *service);

#endif
