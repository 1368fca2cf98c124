/* server/parameter_service.h - the parameter service: rpc calls become calls of the store, and its answers replies.
 *
 * Everything is answered on the rpc thread that brought the call, except a pull that was parked: it is answered by
 * whoever makes its last version, or by the tick. */
#ifndef SG_SERVER_PARAMETER_SERVICE_H
#define SG_SERVER_PARAMETER_SERVICE_H

#include "common/rpc_server.h"
#include "server/store.h"

typedef struct sg_parameter_service {
    sg_store *store; /* its options' answer_pull must be sg_parameter_service_answer_pull, and user this service */
    uint64_t message_bytes; /* bound of the data of one request */
    /* Gets the ticket that a push asks for, or NULL; in ps 0, NULL elsewhere. See sg_coordinator_service_ticket. */
    Shardgrad__V1__TicketResponse *(*ticket)(void *user, const Shardgrad__V1__TicketRequest *request);
    void *ticket_user;
} sg_parameter_service;

#define SG_PARAMETER_SERVICE_METHODS 6
/* The methods to serve; service must outlive the server. */
void sg_parameter_service_methods(sg_parameter_service *service, sg_rpc_method methods[SG_PARAMETER_SERVICE_METHODS]);

/* For sg_store_options. `user` is the service, `call` the sg_rpc_call. */
void sg_parameter_service_answer_pull(void *user, void *call, const sg_store_pull_answer *answer);

#endif
