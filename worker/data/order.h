/* worker/data/order.h - the order in which an epoch visits the examples: a function of (seed, epoch) alone. */
#ifndef SG_WORKER_DATA_ORDER_H
#define SG_WORKER_DATA_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* A permutation of 0 .. n - 1: Fisher-Yates, from the end, drawing from Philox keyed by (seed, epoch). */
void sg_order_shuffle(uint64_t seed, uint64_t epoch, size_t n, uint32_t *order);

#endif
