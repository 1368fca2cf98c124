/* worker/client/slots.h - objects by number, for numbers that are given out one after the other.
 *
 * An open table: a number mostly lies in the slot of its own lowest bits, because those that are in use at a time are
 * close together. It grows to what the busiest moment needed and allocates nothing from then on. Zeroed is empty. */
#ifndef SG_WORKER_CLIENT_SLOTS_H
#define SG_WORKER_CLIENT_SLOTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct sg_slot {
    uint64_t number; /* 0: free */
    void *object;
} sg_slot;

typedef struct sg_slots {
    sg_slot *list; /* [capacity], a power of two */
    size_t n, capacity;
} sg_slots;

void sg_slots_deinit(sg_slots *slots);
/* number is not 0 and not in the table. */
void sg_slots_put(sg_slots *slots, uint64_t number, void *object);
/* NULL: not there. */
void *sg_slots_get(const sg_slots *slots, uint64_t number);
/* One that is not there is left alone. */
void sg_slots_remove(sg_slots *slots, uint64_t number);

#endif
