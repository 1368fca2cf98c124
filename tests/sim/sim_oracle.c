/* sim_oracle.c - see sim_oracle.h: tickets, contributions and orders. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <string.h>

#include "common/status.h"
#include "server/store_internal.h"

/* --- tickets ---------------------------------------------------------------------------------------------------- */

sim_step_record *sim_oracle_record(sim *s, uint32_t group, uint64_t step)
{
    if (group >= s->scenario.n_groups || step >= SIM_MAX_STEPS) {
        sim_fail(s, "group %" PRIu32 ", step %" PRIu64 " is out of bounds", group, step);
        return &s->steps[0][0];
    }
    if (s->n_steps[group] <= step)
        s->n_steps[group] = (uint32_t)step + 1;
    return &s->steps[group][step];
}

static void check_alone(sim *s, const sim_step_record *record, uint64_t incarnation, uint64_t step)
{
    for (uint32_t i = 0; i < SIM_MAX_INDICES; i++) {
        if (record->incarnations[i] != 0 && record->incarnations[i] != incarnation)
            sim_fail(s, "async ticket %" PRIu64 " was given to two workers", step);
    }
}

/* Ticket i is batch i, whatever was saved and restored meanwhile: groups step at iterations of their own in sync only.
 */
static void check_batch(sim *s, const Shardgrad__V1__Step *step)
{
    const uint64_t every = step->group == 1 ? s->scenario.every : 1;
    if (!s->was_sync && step->iteration != step->step * every)
        sim_fail(s, "async ticket %" PRIu64 " of group %" PRIu32 " is of iteration %" PRIu64, step->step, step->group,
                 step->iteration);
}

/* All that belongs to a step is the same in every ticket of it. */
void sim_oracle_ticket(sim *s, uint64_t incarnation, const Shardgrad__V1__TicketResponse *ticket)
{
    if (incarnation >> 32 != s->generation)
        return;
    const Shardgrad__V1__Step *step = ticket->step;
    sim_save_ticket(s);
    sim_step_record *record = sim_oracle_record(s, step->group, step->step);
    sg_workers members;
    if (sg_workers_decode(step->members.data, step->members.len, &members, NULL) != SG_OK) {
        sim_fail(s, "a ticket's members cannot be read");
        return;
    }
    if (record->handed_out && (!sg_workers_equal(&record->members, &members) || record->iteration != step->iteration ||
                               record->hyper != step->hyper || record->learning_rate < step->learning_rate ||
                               record->learning_rate > step->learning_rate))
        sim_fail(s, "group %" PRIu32 ", step %" PRIu64 " was handed out in two ways", step->group, step->step);
    const bool is_first = !record->handed_out;
    record->handed_out = true;
    record->members = members;
    record->iteration = step->iteration;
    record->hyper = step->hyper;
    record->learning_rate = step->learning_rate;
    if (is_first)
        sim_ask_step(s, step->group, step->step);
    if (ticket->size != sg_workers_count(&members) || ticket->rank >= ticket->size)
        sim_fail(s, "rank %" PRIu32 " of %" PRIu32 " is not that of the members", ticket->rank, ticket->size);
    uint32_t index = s->indices[incarnation & SIM_COUNTER_MASK];
    if (s->scenario.async)
        check_alone(s, record, incarnation, step->step);
    check_batch(s, step);
    if (!sg_workers_has(&members, index) || ticket->rank != sg_workers_rank(&members, index))
        sim_fail(s, "worker %" PRIu32 " got rank %" PRIu32 " of a step of others", index, ticket->rank);
    bool handed_on = (s->scenario.on_loss == SG_WORKER_LOSS_WAIT || sg_workers_has(&s->returned, index)) &&
                     incarnation > record->incarnations[index];
    if (record->incarnations[index] != 0 && record->incarnations[index] != incarnation && !handed_on)
        sim_fail(s, "group %" PRIu32 ", step %" PRIu64 " was given to two lives of worker %" PRIu32, step->group,
                 step->step, index);
    const bool is_new = record->incarnations[index] == 0;
    record->incarnations[index] = incarnation;
    if (s->scenario.ssp && is_new)
        sim_clocks_granted(s, incarnation, step->group);
}

/* --- orders ------------------------------------------------------------------------------------------------------ */

/* NULL: it has been told of a later generation. */
static sim_roster *roster_of(sim *s, uint32_t ps, uint64_t generation)
{
    sim_roster *roster = &s->rosters[ps];
    if (roster->life != s->ps[ps].life || roster->generation < generation)
        *roster = (sim_roster){.life = s->ps[ps].life, .generation = generation};
    return roster->generation == generation ? roster : NULL;
}

/* The workers that this ps has let in, and not fenced. */
static uint64_t n_live(const sim *s, uint32_t ps)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < SIM_MAX_INDICES; i++)
        n += s->rosters[ps].incarnations[i] != 0 && !s->rosters[ps].fenced[i];
    return n;
}

static void admitted(sim *s, uint32_t ps, uint64_t generation, const Shardgrad__V1__Admit *admit)
{
    sim_roster *roster = roster_of(s, ps, generation);
    if (roster == NULL || admit->worker >= SIM_MAX_INDICES || admit->incarnation <= roster->incarnations[admit->worker])
        return;
    roster->incarnations[admit->worker] = admit->incarnation;
    roster->fenced[admit->worker] = false;
}

static void excused(sim *s, uint32_t ps, uint64_t generation, const Shardgrad__V1__Excuse *excuse)
{
    sim_roster *roster = roster_of(s, ps, generation);
    if (roster != NULL && excuse->worker < SIM_MAX_INDICES &&
        roster->incarnations[excuse->worker] == excuse->incarnation)
        roster->fenced[excuse->worker] = true;
    for (size_t i = 0; i < excuse->n_steps && generation == s->generation; i++) {
        const Shardgrad__V1__Step *step = excuse->steps[i];
        sim_step_record *record = sim_oracle_record(s, step->group, step->step);
        sg_workers members;
        if (sg_workers_decode(step->members.data, step->members.len, &members, NULL) != SG_OK ||
            !sg_workers_has(&members, excuse->worker))
            sim_fail(s, "worker %" PRIu32 " is excused from a step of others", excuse->worker);
        sg_workers_add(&record->excused[ps], excuse->worker);
    }
}

/* Numbers are those of one life of the coordinator. */
static void told_hyper(sim *s, uint64_t by_life, const Shardgrad__V1__Hyper *hyper)
{
    if (by_life < s->hypers.life)
        return; /* late */
    if (by_life > s->hypers.life)
        s->hypers = (sim_hypers){.life = by_life};
    if (hyper->number == 0 || hyper->number > SIM_MAX_HYPERS)
        sim_fail(s, "set %" PRIu64 " of hyper-parameters is out of bounds", hyper->number);
    else
        s->hypers.sets[hyper->number - 1] = *hyper;
    sim_change_clips(s, hyper->clip_global_norm);
}

void sim_oracle_ordered(sim *s, uint32_t ps, uint64_t by_life, const Shardgrad__V1__OrderRequest *order)
{
    const uint64_t generation = order->header->generation;
    if (order->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT)
        admitted(s, ps, generation, order->admit);
    else if (order->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE)
        excused(s, ps, generation, order->excuse);
    else if (order->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER)
        told_hyper(s, by_life, order->hyper);
    else if (order->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN)
        (void)roster_of(s, ps, generation);
}

/* --- contributions ---------------------------------------------------------------------------------------------- */

static sim_contribution *contribution_of(sim *s, const Shardgrad__V1__PushRequest *push)
{
    sim_step_record *record = sim_oracle_record(s, push->step->group, push->steps[0]);
    for (uint32_t i = 0; i < record->n_contributions; i++) {
        if (record->contributions[i].incarnation == push->incarnation)
            return &record->contributions[i];
    }
    if (record->n_contributions == SG_ARRAY_LEN(record->contributions)) {
        sim_fail(s, "too many incarnations push step %" PRIu64, push->steps[0]);
        return &record->contributions[0];
    }
    sim_contribution *made = &record->contributions[record->n_contributions++];
    *made = (sim_contribution){.index = push->worker, .incarnation = push->incarnation, .weight = push->weight};
    return made;
}

static uint64_t bits_of(const Shardgrad__V1__PushRequest *push)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < push->n_slices; i++)
        bits |= UINT64_C(1) << push->slices[i];
    return bits;
}

void sim_oracle_hello(sim *s, uint32_t index, uint64_t incarnation)
{
    uint64_t counter = incarnation & SIM_COUNTER_MASK;
    if (incarnation >> 32 != s->generation)
        return;
    if (counter == 0 || counter > SIM_MAX_INCARNATIONS)
        sim_fail(s, "incarnation %" PRIx64 " is not one of %u", incarnation, SIM_MAX_INCARNATIONS);
    else if (s->hellos[counter] && s->indices[counter] != index)
        sim_fail(s, "incarnation %" PRIx64 " was given to two workers", incarnation);
    else
        s->indices[counter] = index;
    s->hellos[counter % (SIM_MAX_INCARNATIONS + 1)] = true;
}

void sim_oracle_sent(sim *s, const sim_call *call)
{
    const Shardgrad__V1__PushRequest *push = (const Shardgrad__V1__PushRequest *)call->body;
    if (push->generation != s->generation)
        return;
    sim_contribution *contribution = contribution_of(s, push);
    if (contribution->weight != push->weight)
        sim_fail(s, "worker %" PRIu32 " pushes step %" PRIu64 " with two weights", push->worker, push->steps[0]);
    contribution->sent |= bits_of(push);
}

/* Async: every slice that counts now has its effect now. */
static void subtract(sim *s, const Shardgrad__V1__PushRequest *push, uint64_t fresh, uint64_t n_live)
{
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++) {
        if (!(fresh & UINT64_C(1) << slice))
            continue;
        sim_slice_record *record = &s->slices[slice];
        record->n_counted++;
        if (record->n_counted <= SIM_MAX_STEPS)
            record->makers[record->n_counted] = push->incarnation;
        if (push->weight != 0)
            sim_rules_make_alone(s, push, slice, n_live, record->expected);
    }
}

/* Sync: slices that an earlier life of the index has contributed to the step. */
static uint64_t counted_before(sim *s, const Shardgrad__V1__PushRequest *push)
{
    const sim_step_record *record = sim_oracle_record(s, push->step->group, push->steps[0]);
    uint64_t bits = 0;
    for (uint32_t i = 0; i < record->n_contributions && !s->scenario.async; i++) {
        const sim_contribution *one = &record->contributions[i];
        if (one->index == push->worker && one->incarnation != push->incarnation)
            bits |= one->counted;
    }
    return bits;
}

/* A store has answered a push: with OK every slice of it counts, but those that it refused; else none. */
void sim_oracle_pushed(sim *s, const sim_call *call, sg_status status, const uint32_t *refused, size_t n_refused)
{
    const Shardgrad__V1__PushRequest *push = (const Shardgrad__V1__PushRequest *)call->body;
    if (push->generation != s->generation) {
        if (status == SG_OK && push->generation < s->generation &&
            s->ps[call->to].store->generation != push->generation)
            sim_fail(s, "a push of generation %" PRIu64 " was counted in a later one", push->generation);
        return;
    }
    sim_contribution *contribution = contribution_of(s, push);
    uint64_t fresh = bits_of(push) & ~contribution->counted & ~counted_before(s, push);
    if (status == SG_LATE || status == SG_FENCED)
        contribution->sent &= contribution->counted; /* refused for good */
    if (status != SG_OK)
        return;
    for (size_t i = 0; i < n_refused; i++) {
        if ((fresh >> refused[i] & 1) == 0)
            sim_fail(s, "slice %" PRIu32 " is refused, which was counted or not sent", refused[i]);
        fresh &= ~(UINT64_C(1) << refused[i]);
        contribution->given_up |= UINT64_C(1) << refused[i];
    }
    contribution->counted |= fresh;
    if (s->scenario.async)
        subtract(s, push, fresh, n_live(s, call->to));
}

void sim_oracle_cancelled(sim *s, const sim_call *call)
{
    const Shardgrad__V1__PushRequest *push = (const Shardgrad__V1__PushRequest *)call->body;
    if (push->generation == s->generation)
        contribution_of(s, push)->given_up |= bits_of(push);
}

/* A worker says goodbye only when all that it pushed is acknowledged; of what came after the end of its generation
 * nobody has kept account. */
void sim_oracle_left(sim *s, uint64_t incarnation)
{
    if (incarnation >> 32 != s->generation)
        return;
    for (uint32_t i = 0; i < s->scenario.n_faults; i++) {
        if (s->scenario.faults[i].happened)
            return; /* what a ps took with it is not acknowledged any more */
    }
    for (uint32_t group = 0; group < s->scenario.n_groups; group++) {
        for (uint32_t step = 0; step < SIM_MAX_STEPS && s->steps[group][step].handed_out; step++) {
            const sim_step_record *record = &s->steps[group][step];
            for (uint32_t i = 0; i < record->n_contributions; i++) {
                const sim_contribution *one = &record->contributions[i];
                if (one->incarnation == incarnation && (one->sent & ~(one->counted | one->given_up)) != 0)
                    sim_fail(s, "worker %" PRIu32 " left while its push of step %" PRIu32 " was under way", one->index,
                             step);
            }
        }
    }
}
