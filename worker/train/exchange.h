/* worker/train/exchange.h - gradients and values that travel while the model computes.
 *
 * A variable is sent as soon as its gradient is final, the last layers first, a large one slice by slice, and its next
 * value is waited for only when the next forward pass is about to read it, a large one part by part. One step:
 *
 *     sg_exchange_wait      for each variable, or part of one, right before the forward pass reads it
 *     sg_exchange_finish    when the loss is known: the step before is over, all its values are there
 *     sg_exchange_begin     nothing was sent of this step yet
 *     sg_exchange_send      for each variable that is not frozen, or part of one, when its gradient is final and its
 *                           value read no more
 *     sg_exchange_flush     after the backward pass
 *
 * and sg_exchange_finish after the last one. In between the buffers of what was sent belong to the client.
 * Threads: one user at a time. */
#ifndef SG_WORKER_TRAIN_EXCHANGE_H
#define SG_WORKER_TRAIN_EXCHANGE_H

#include "common/status.h"
#include "shardgrad/client.h"

typedef struct sg_exchange sg_exchange;

/* Of the variables that were declared to this client, after that; both must outlive it. */
sg_exchange *sg_exchange_create(sg_client *client, const sg_variable *variables, size_t n_variables);
/* Cancels what is under way and waits until its buffers are back: nothing is on its way then. */
void sg_exchange_reset(sg_exchange *exchange);
/* The same, and frees. NULL is fine. */
void sg_exchange_destroy(sg_exchange *exchange);

/* step->loss and step->examples are final. */
void sg_exchange_begin(sg_exchange *exchange, const sg_step *step);
/* The parts of a variable come from its first element to its last, and may end anywhere. left_out: this part and all
 * that come after it in this step are pushed with weight 0, and with it what came before it in its slice. What is
 * small, or no whole slice yet, waits for what comes next, to go with it. */
SG_MUST_USE sg_status sg_exchange_send(sg_exchange *exchange, const sg_range *part, bool left_out, sg_error *err);
SG_MUST_USE sg_status sg_exchange_flush(sg_exchange *exchange, sg_error *err);

/* Until the values of this part are those of the next step; at once if nothing of it is under way. */
SG_MUST_USE sg_status sg_exchange_wait(sg_exchange *exchange, const sg_range *part, sg_error *err);
/* The same for all. */
SG_MUST_USE sg_status sg_exchange_finish(sg_exchange *exchange, sg_error *err);

#endif
