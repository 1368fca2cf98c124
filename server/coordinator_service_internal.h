/* server/coordinator_service_internal.h - what the files of the coordinator's service share. Nobody else includes it.
 *
 *   coordinator_service.c       requests and orders, on the loop's thread
 *   coordinator_service_ride.c  tickets that ride along with a push, on rpc threads */
#ifndef SG_SERVER_COORDINATOR_SERVICE_INTERNAL_H
#define SG_SERVER_COORDINATOR_SERVICE_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "server/coordinator.h"
#include "server/coordinator_service.h"

typedef struct request request;

/* A channel to each ps, made anew when its address changes. */
typedef struct order_channel {
    char *address;
    sg_rpc_channel *channel;
} order_channel;

typedef struct method {
    sg_coordinator_service *service;
    const char *path;
    const ProtobufCMessageDescriptor *type;
    void (*take)(sg_coordinator *coordinator, uint64_t now_ms, const ProtobufCMessage *message, void *call);
} method;

/* Something that the coordinator wants done, decided on an rpc thread. */
typedef struct left_over {
    STAILQ_ENTRY(left_over) link;
    sg_coordinator_action action;
} left_over;

struct sg_coordinator_service {
    sg_coordinator_service_options options;
    /* Guards the coordinator, the next three and `closed`; never held while something is performed. */
    pthread_mutex_t mutex;
    sg_coordinator *coordinator;
    STAILQ_HEAD(, left_over) left_over; /* comes before what the coordinator has queued */
    sg_mailbox_item perform;            /* in the mailbox: */
    bool perform_posted;
    order_channel *channels;       /* [config.ps.n] */
    char *own;                     /* address; NULL: as others have it */
    TAILQ_HEAD(, request) waiting; /* requests that are not answered */
    method methods[SG_COORDINATOR_SERVICE_METHODS];
    bool closed;
};

/* Performs all that was decided. On the loop's thread, without the mutex. */
void sg_coordinator_service_perform(sg_coordinator_service *service);
/* The same, of `perform` in the mailbox. */
void sg_coordinator_service_on_perform(sg_mailbox_item *item);

#endif
