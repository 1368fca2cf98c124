/* Tickets that ride along with a push: what can be decided at once is, on the rpc thread; all else that the coordinator
 * wants done then is left to the loop's thread, in its order. */
#include <stdlib.h>

#include "common/clock.h"
#include "server/coordinator_service_internal.h"

void sg_coordinator_service_on_perform(sg_mailbox_item *item)
{
    sg_coordinator_service *service = SG_CONTAINER_OF(item, sg_coordinator_service, perform);
    pthread_mutex_lock(&service->mutex);
    service->perform_posted = false;
    pthread_mutex_unlock(&service->mutex);
    if (!service->closed)
        sg_coordinator_service_perform(service);
}

/* With the mutex held: takes the answer to `call` out of what the coordinator has decided; the rest is left to the
 * loop's thread. False: it has not answered. */
static bool answer_take(sg_coordinator_service *service, const void *call, Shardgrad__V1__TicketResponse **ticket)
{
    bool answered = false;
    for (sg_coordinator_action action; sg_coordinator_next_action(service->coordinator, &action);) {
        if (action.call != call) {
            left_over *kept = sg_xcalloc(1, sizeof *kept);
            kept->action = action;
            STAILQ_INSERT_TAIL(&service->left_over, kept, link);
            continue;
        }
        answered = true;
        if (action.kind == SG_COORDINATOR_REPLY) {
            *ticket = (Shardgrad__V1__TicketResponse *)action.body;
            action.body = NULL;
        }
        sg_coordinator_action_deinit(&action);
    }
    return answered;
}

/* With the mutex held. NULL: nothing can be had at once. */
static Shardgrad__V1__TicketResponse *ticket_take(sg_coordinator_service *service,
                                                  const Shardgrad__V1__TicketRequest *wanted)
{
    Shardgrad__V1__TicketResponse *ticket = NULL;
    void *call = &ticket; /* nobody else's */
    if (service->closed || sg_coordinator_is_over(service->coordinator))
        return NULL;
    sg_coordinator_on_ticket(service->coordinator, sg_clock_ms(), wanted, call);
    if (!answer_take(service, call, &ticket))
        sg_coordinator_forget(service->coordinator, call);
    return ticket;
}

Shardgrad__V1__TicketResponse *sg_coordinator_service_ticket(void *user, const Shardgrad__V1__TicketRequest *wanted)
{
    sg_coordinator_service *service = user;
    if (pthread_mutex_trylock(&service->mutex) != 0) /* the loop holds it over whole calls; a push waits for nobody */
        return NULL;
    Shardgrad__V1__TicketResponse *ticket = ticket_take(service, wanted);
    bool posts = !STAILQ_EMPTY(&service->left_over) && !service->perform_posted;
    service->perform_posted |= posts;
    pthread_mutex_unlock(&service->mutex);
    if (posts)
        sg_mailbox_post(service->options.mailbox, &service->perform);
    return ticket;
}
