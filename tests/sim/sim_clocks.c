/* tests/sim/sim_clocks.c - what ssp promises: nobody begins a step more than `staleness` ahead of one who may still
 * push, and the values that it computes on hold all that the others did up to so many steps ago.
 *
 * Worked out from what the stores took, not from what workers reported: a ticket counts as finished when every slice of
 * it was counted, which is never later than its worker knows it. Where a joiner's clock began is known from above. */
#include <inttypes.h>

#include "tests/sim/sim.h"

static uint64_t trained_slices(const sim *s, uint32_t group)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < s->plan->n_slices; i++) {
        if (s->plan->slices[i].group == group && s->plan->slices[i].variable != SIM_FROZEN_VARIABLE)
            bits |= UINT64_C(1) << i;
    }
    return bits;
}

static bool is_whole(const sim_step_record *record, uint64_t incarnation, uint64_t slices)
{
    for (uint32_t i = 0; i < record->n_contributions; i++) {
        if (record->contributions[i].incarnation == incarnation)
            return (record->contributions[i].counted & slices) == slices;
    }
    return false;
}

static void count_tickets(const sim *s, uint64_t incarnation, uint32_t group, uint64_t *granted, uint64_t *finished)
{
    const uint64_t slices = trained_slices(s, group);
    *granted = *finished = 0;
    for (uint32_t step = 0; step < SIM_MAX_STEPS; step++) {
        const sim_step_record *record = &s->steps[group][step];
        for (uint32_t index = 0; index < SIM_MAX_INDICES; index++) {
            if (record->incarnations[index] != incarnation)
                continue;
            ++*granted;
            *finished += is_whole(record, incarnation, slices);
        }
    }
}

static uint64_t finished_of(const sim *s, const sim_clock *clock, uint32_t group)
{
    uint64_t granted, finished;
    count_tickets(s, clock->incarnation, group, &granted, &finished);
    return finished;
}

/* It has its first ticket: where can its clock have begun? */
static void begin(sim *s, sim_clock *made, uint64_t incarnation, uint32_t group)
{
    *made = (sim_clock){.incarnation = incarnation, .from_zero = true, .start_at_most = UINT64_MAX};
    for (uint32_t i = 0; i <= SIM_MAX_INCARNATIONS; i++) {
        const sim_clock *other = &s->clocks[group][i];
        if (other == made || other->incarnation == 0)
            continue;
        const uint64_t finished = finished_of(s, other, group);
        made->from_zero = made->from_zero && finished == 0;
        if (other->from_zero && sim_coordinator_counts(s, other->incarnation) && finished < made->start_at_most)
            made->start_at_most = finished;
    }
    if (made->from_zero)
        made->start_at_most = 0;
}

void sim_clocks_granted(sim *s, uint64_t incarnation, uint32_t group)
{
    uint64_t granted, finished;
    sim_clock *own = &s->clocks[group][incarnation & SIM_COUNTER_MASK];
    if (own->incarnation == 0)
        begin(s, own, incarnation, group);
    if (!own->from_zero)
        return;
    count_tickets(s, incarnation, group, &granted, &finished);
    for (uint32_t i = 0; i <= SIM_MAX_INCARNATIONS; i++) {
        const sim_clock *other = &s->clocks[group][i];
        if (other->incarnation == 0 || other->start_at_most == UINT64_MAX ||
            !sim_coordinator_counts(s, other->incarnation))
            continue;
        const uint64_t clock = finished_of(s, other, group) + other->start_at_most;
        if (granted - 1 > clock + s->scenario.staleness)
            sim_fail(s, "incarnation %" PRIx64 " got a ticket at clock %" PRIu64 ", and %" PRIx64 " is at %" PRIu64,
                     incarnation, granted - 1, other->incarnation, clock);
    }
}

void sim_clocks_reads(sim *s, uint64_t incarnation, uint32_t slice, uint64_t version)
{
    const uint32_t group = s->plan->slices[slice].group;
    const sim_clock *own = &s->clocks[group][incarnation & SIM_COUNTER_MASK];
    uint64_t granted, finished;
    if (incarnation >> 32 != s->generation)
        return;
    count_tickets(s, incarnation, group, &granted, &finished);
    if (!own->from_zero || granted < s->scenario.staleness + 2)
        return;
    for (uint32_t i = 0; i <= SIM_MAX_INCARNATIONS; i++) {
        const sim_clock *other = &s->clocks[group][i];
        if (!other->from_zero || other->incarnation == 0 || !sim_coordinator_counts(s, other->incarnation))
            continue;
        uint64_t n = 0;
        for (uint64_t v = 1; v <= version && v <= SIM_MAX_STEPS; v++)
            n += s->slices[slice].makers[v] == other->incarnation;
        if (n + s->scenario.staleness < granted - 1)
            sim_fail(s,
                     "incarnation %" PRIx64 " computes at clock %" PRIu64 " on version %" PRIu64 " of slice %" PRIu32
                     ", which holds %" PRIu64 " contributions of %" PRIx64,
                     incarnation, granted - 1, version, slice, n, other->incarnation);
    }
}
