/* worker/client/slots.c - see slots.h. */
#include "worker/client/slots.h"

#include <stdlib.h>

#include "common/status.h"

#define FIRST_CAPACITY 64u

void sg_slots_deinit(sg_slots *slots)
{
    free(slots->list);
    *slots = (sg_slots){0};
}

/* Where the number is, or the free slot where it would be. */
static size_t place_of(const sg_slots *slots, uint64_t number)
{
    const size_t mask = slots->capacity - 1;
    size_t at = (size_t)number & mask;
    while (slots->list[at].number != 0 && slots->list[at].number != number)
        at = (at + 1) & mask;
    return at;
}

static void grow(sg_slots *slots)
{
    const sg_slots old = *slots;
    slots->capacity = old.capacity == 0 ? FIRST_CAPACITY : 2 * old.capacity;
    slots->list = sg_xcalloc(slots->capacity, sizeof *slots->list);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.list[i].number != 0)
            slots->list[place_of(slots, old.list[i].number)] = old.list[i];
    free(old.list);
}

void sg_slots_put(sg_slots *slots, uint64_t number, void *object)
{
    if (2 * slots->n >= slots->capacity)
        grow(slots);
    slots->list[place_of(slots, number)] = (sg_slot){.number = number, .object = object};
    slots->n++;
}

void *sg_slots_get(const sg_slots *slots, uint64_t number)
{
    return slots->n == 0 || number == 0 ? NULL : slots->list[place_of(slots, number)].object;
}

/* What lies behind the gap and would not be found across it is moved into it. */
void sg_slots_remove(sg_slots *slots, uint64_t number)
{
    if (sg_slots_get(slots, number) == NULL)
        return;
    const size_t mask = slots->capacity - 1;
    size_t gap = place_of(slots, number);
    for (size_t at = (gap + 1) & mask; slots->list[at].number != 0; at = (at + 1) & mask) {
        const size_t home = (size_t)slots->list[at].number & mask;
        if (((at - home) & mask) < ((at - gap) & mask))
            continue;
        slots->list[gap] = slots->list[at];
        gap = at;
    }
    slots->list[gap] = (sg_slot){0};
    slots->n--;
}
