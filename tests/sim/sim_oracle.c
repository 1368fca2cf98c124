/* tests/sim/sim_oracle.c - what must hold after every event, worked out beside the cluster and by other means.
 *
 * Sync: version s+1 of a slice is the rule applied once to version s and to each contribution that a store took, once,
 * in the order of worker indices: the same bits whatever arrived first and however many ps there are. Async: integers
 * are subtracted, so that the newest version is exactly the initial one minus all that counted, in whatever order; but
 * of the averaged variable, which moves towards each. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/status.h"
#include "server/store_internal.h"

#define ELEM_RANGE 1000u

/* --- numbers ---------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    return x ^ (x >> 33);
}

/* An integer, and another one for every incarnation, step and element: so no sum of some looks like that of others. */
float sim_oracle_gradient(uint64_t incarnation, uint64_t step, uint32_t slice, uint32_t elem)
{
    return (float)(1 + mix(incarnation * 1000003 + step * 4099 + slice * 61 + elem) % ELEM_RANGE);
}

float sim_oracle_initial(uint32_t slice, uint32_t elem)
{
    return (float)(mix(slice * 1000 + elem + 77) % ELEM_RANGE);
}

static bool is_averaged(const sim *s, uint32_t slice)
{
    return s->plan->slices[slice].variable == SIM_AVERAGED_VARIABLE;
}

/* --- tickets ---------------------------------------------------------------------------------------------------- */

static sim_step_record *record_of(sim *s, uint32_t group, uint64_t step)
{
    if (group >= s->scenario.n_groups || step >= SIM_MAX_STEPS) {
        sim_fail(s, "group %" PRIu32 ", step %" PRIu64 " is out of bounds", group, step);
        return &s->steps[0][0];
    }
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
    sim_step_record *record = record_of(s, step->group, step->step);
    sg_workers members;
    if (sg_workers_decode(step->members.data, step->members.len, &members, NULL) != SG_OK) {
        sim_fail(s, "a ticket's members cannot be read");
        return;
    }
    if (record->handed_out &&
        (!sg_workers_equal(&record->members, &members) || record->iteration != step->iteration ||
         record->learning_rate < step->learning_rate || record->learning_rate > step->learning_rate))
        sim_fail(s, "group %" PRIu32 ", step %" PRIu64 " was handed out in two ways", step->group, step->step);
    const bool is_first = !record->handed_out;
    record->handed_out = true;
    record->members = members;
    record->iteration = step->iteration;
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

/* --- contributions ---------------------------------------------------------------------------------------------- */

static sim_contribution *contribution_of(sim *s, const Shardgrad__V1__PushRequest *push)
{
    sim_step_record *record = record_of(s, push->step->group, push->steps[0]);
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

static void expect_initial(sim_slice_record *record, uint32_t slice)
{
    if (record->n_counted > 0 || record->restored)
        return;
    for (uint32_t i = 0; i < SIM_SLICE_ELEMS; i++)
        record->expected[i] = sim_oracle_initial(slice, i);
}

/* Async: what one contribution makes of a value. */
static float made_alone(const sim *s, const Shardgrad__V1__PushRequest *push, uint32_t slice, float old, float g,
                        uint64_t n_live)
{
    if (is_averaged(s, slice))
        return n_live > 1 ? fmaf(1.0f / (float)n_live, g - old, old) : g;
    return fmaf(-push->step->learning_rate, g, old);
}

/* Async: every slice that counts now has its effect now. */
static void subtract(sim *s, const Shardgrad__V1__PushRequest *push, uint64_t fresh, uint64_t n_live)
{
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++) {
        if (!(fresh & UINT64_C(1) << slice))
            continue;
        sim_slice_record *record = &s->slices[slice];
        expect_initial(record, slice);
        record->n_counted++;
        if (record->n_counted <= SIM_MAX_STEPS)
            record->makers[record->n_counted] = push->incarnation;
        for (uint32_t i = 0; i < SIM_SLICE_ELEMS && push->weight != 0; i++)
            record->expected[i] = made_alone(s, push, slice, record->expected[i],
                                             sim_oracle_gradient(push->incarnation, push->steps[0], slice, i), n_live);
    }
}

/* Sync: slices that an earlier life of the index has contributed to the step. */
static uint64_t counted_before(sim *s, const Shardgrad__V1__PushRequest *push)
{
    const sim_step_record *record = record_of(s, push->step->group, push->steps[0]);
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
        subtract(s, push, fresh, atomic_load(&s->ps[call->to].store->live));
}

void sim_oracle_cancelled(sim *s, const sim_call *call)
{
    const Shardgrad__V1__PushRequest *push = (const Shardgrad__V1__PushRequest *)call->body;
    if (push->generation == s->generation)
        contribution_of(s, push)->given_up |= bits_of(push);
}

void sim_oracle_ordered(sim *s, uint32_t ps, const Shardgrad__V1__OrderRequest *order)
{
    if (order->order_case != SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE || order->header->generation != s->generation)
        return;
    for (size_t i = 0; i < order->excuse->n_steps; i++) {
        const Shardgrad__V1__Step *step = order->excuse->steps[i];
        sim_step_record *record = record_of(s, step->group, step->step);
        sg_workers members;
        if (sg_workers_decode(step->members.data, step->members.len, &members, NULL) != SG_OK ||
            !sg_workers_has(&members, order->excuse->worker))
            sim_fail(s, "worker %" PRIu32 " is excused from a step of others", order->excuse->worker);
        sg_workers_add(&record->excused[ps], order->excuse->worker);
    }
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

/* --- versions --------------------------------------------------------------------------------------------------- */

static void remember(sim *s, uint32_t slice, const sg_version *version)
{
    sim_slice_record *record = &s->slices[slice];
    if (version->step > SIM_MAX_STEPS) {
        sim_fail(s, "slice %" PRIu32 " has version %" PRIu64, slice, version->step);
        return;
    }
    if (record->known[version->step]) {
        if (memcmp(record->values[version->step], version->values, version->n_elems * sizeof(float)) != 0)
            sim_fail(s, "version %" PRIu64 " of slice %" PRIu32 " has changed", version->step, slice);
        return;
    }
    record->known[version->step] = true;
    memcpy(record->values[version->step], version->values, version->n_elems * sizeof(float));
}

/* The contributions that make the next version of a slice, in the order of worker indices. */
static uint32_t counted(const sim_step_record *record, uint32_t slice,
                        const sim_contribution *list[SG_ARRAY_LEN(((sim_step_record *)0)->contributions)])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < record->n_contributions; i++) {
        const sim_contribution *one = &record->contributions[i];
        if (!(one->counted & UINT64_C(1) << slice))
            continue;
        uint32_t at = n++;
        while (at > 0 && list[at - 1]->index > one->index) {
            list[at] = list[at - 1];
            at--;
        }
        list[at] = one;
    }
    return n;
}

/* *any: somebody's examples count. */
static float mean_of(const sim_contribution *const *list, uint32_t n, uint64_t step, uint32_t slice, uint32_t elem,
                     bool *any)
{
    uint64_t total = 0;
    float sum = 0;
    bool first = true;
    for (uint32_t i = 0; i < n; i++)
        total += list[i]->weight;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i]->weight == 0)
            continue;
        float scale = (float)((double)list[i]->weight / (double)total);
        float g = sim_oracle_gradient(list[i]->incarnation, step, slice, elem);
        sum = first ? scale * g : fmaf(scale, g, sum);
        first = false;
    }
    *any = total > 0;
    return sum;
}

/* Of a step of a group: what its gradient is multiplied by, and the rate of each variable. */
typedef struct step_scales {
    float clip, rates[SIM_MAX_SLICES];
} step_scales;

/* The sums of squares of slices, of one variable or (UINT32_MAX) of all that are trained and not averaged. */
static void add_squares(sim *s, uint32_t group, uint64_t step, uint32_t variable, long double *values,
                        long double *gradients)
{
    const sim_step_record *record = record_of(s, group, step);
    *values = *gradients = 0;
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++) {
        const sg_plan_slice *planned = &s->plan->slices[slice];
        const sim_contribution *list[SG_ARRAY_LEN(record->contributions)];
        bool any;
        if (planned->group != group || planned->variable == SIM_FROZEN_VARIABLE || is_averaged(s, slice) ||
            (variable != UINT32_MAX && planned->variable != variable))
            continue;
        const uint32_t n = counted(record, slice, list);
        for (uint32_t i = 0; i < planned->n_elems; i++) {
            const long double g = mean_of(list, n, step, slice, i, &any), w = s->slices[slice].values[step][i];
            *gradients += g * g;
            *values += w * w;
        }
    }
}

static step_scales scales_of(sim *s, uint32_t group, uint64_t step)
{
    const sim_step_record *record = record_of(s, group, step);
    step_scales out = {.clip = 1};
    long double values, gradients, factor = 1;
    for (uint32_t i = 0; i < SIM_MAX_SLICES; i++)
        out.rates[i] = record->learning_rate;
    if (s->scenario.clip > 0) {
        add_squares(s, group, step, UINT32_MAX, &values, &gradients);
        factor = fminl((long double)s->scenario.clip / (sqrtl(gradients) + 1e-6L), 1);
        out.clip = (float)factor;
    }
    for (uint32_t i = 0; s->scenario.rule == SG_RULE_LARS && i < s->plan->n_slices; i++) {
        if (s->plan->slices[i].variable != SIM_MATRIX_VARIABLE) /* others have one dimension */
            continue;
        add_squares(s, group, step, s->plan->slices[i].variable, &values, &gradients);
        if (values > 0 && gradients > 0)
            out.rates[i] =
                (float)((long double)record->learning_rate * 0.5L * sqrtl(values) / (factor * sqrtl(gradients)));
    }
    return out;
}

/* The rate stays in it. */
static float next_velocity(const step_scales *scales, uint32_t slice, float mean, float old, float *velocity)
{
    *velocity = fmaf(scales->rates[slice], scales->clip * mean, SIM_MOMENTUM * old);
    return *velocity;
}

/* *velocity: of the value, and then of the next. */
static float next_value(const sim *s, const step_scales *scales, const sim_contribution *const *list, uint32_t n,
                        uint64_t step, uint32_t slice, uint32_t elem, float old, float *velocity)
{
    bool any;
    const float sum = mean_of(list, n, step, slice, elem, &any);
    if (!any || is_averaged(s, slice))
        return any ? sum : old;
    if (s->scenario.rule == SG_RULE_LARS)
        return old - next_velocity(scales, slice, sum, *velocity, velocity);
    return fmaf(-scales->rates[slice], scales->clip * sum, old);
}

/* Versions that went before anybody looked are taken as they come; the velocity is unknown from there on. */
static void check_values(sim *s, uint32_t slice, uint64_t step, const sim_contribution *const *list, uint32_t n)
{
    const step_scales scales = scales_of(s, s->plan->slices[slice].group, step);
    sim_slice_record *record = &s->slices[slice];
    const bool has_velocity = step == 0 || record->has_velocities[step];
    record->has_velocities[step + 1] = false;
    if (!record->known[step] || !record->known[step + 1] || (s->scenario.rule == SG_RULE_LARS && !has_velocity))
        return;
    for (uint32_t i = 0; i < s->plan->slices[slice].n_elems; i++) {
        float velocity = step == 0 ? 0 : record->velocities[step][i];
        const float want = next_value(s, &scales, list, n, step, slice, i, record->values[step][i], &velocity);
        const float got = record->values[step + 1][i];
        record->velocities[step + 1][i] = velocity;
        if (memcmp(&want, &got, sizeof want) != 0)
            sim_fail(s,
                     "slice %" PRIu32 ", version %" PRIu64 ", element %" PRIu32 ": %.9g, wanted %.9g from %" PRIu32
                     " contributions",
                     slice, step + 1, i, (double)got, (double)want, n);
    }
    record->has_velocities[step + 1] = true;
}

static void check_step(sim *s, uint32_t ps, uint32_t slice, uint64_t step)
{
    const sim_step_record *record = record_of(s, s->plan->slices[slice].group, step);
    const sim_contribution *list[SG_ARRAY_LEN(record->contributions)];
    uint32_t n = counted(record, slice, list), member;
    sg_workers missing = record->excused[ps];
    missing = sg_workers_minus(&record->members, &missing);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && list[i - 1]->index == list[i]->index)
            sim_fail(s, "slice %" PRIu32 ", step %" PRIu64 ": two lives of worker %" PRIu32 " counted", slice, step,
                     list[i]->index);
        sg_workers_remove(&missing, list[i]->index);
    }
    const uint32_t n_members = sg_workers_count(&record->members), backup = s->scenario.backup;
    const bool is_enough = backup > 0 && n >= 1 && n + backup >= n_members;
    if (!is_enough && sg_workers_next(&missing, 0, &member))
        sim_fail(s, "slice %" PRIu32 ", step %" PRIu64 " closed without worker %" PRIu32, slice, step, member);
    check_values(s, slice, step, list, n);
}

static void check_sync(sim *s, uint32_t ps, uint32_t slice, uint64_t newest)
{
    sim_slice_record *record = &s->slices[slice];
    if (!record->seen) {
        record->newest = 0;
        if (newest != 0 && !record->known[0])
            sim_fail(s, "slice %" PRIu32 " begins with version %" PRIu64, slice, newest);
    }
    if (newest < record->newest)
        sim_fail(s, "slice %" PRIu32 " goes back from version %" PRIu64 " to %" PRIu64, slice, record->newest, newest);
    for (; record->newest < newest && !s->failed; record->newest++)
        check_step(s, ps, slice, record->newest);
}

static void check_async(sim *s, uint32_t slice, const sg_version *newest)
{
    sim_slice_record *record = &s->slices[slice];
    record->newest = newest->step;
    if (newest->step != record->n_counted)
        sim_fail(s, "slice %" PRIu32 " has version %" PRIu64 " after %" PRIu64 " contributions", slice, newest->step,
                 record->n_counted);
    expect_initial(record, slice);
    for (uint32_t i = 0; i < newest->n_elems; i++) {
        const float want = record->expected[i];
        if (memcmp(&newest->values[i], &want, sizeof want) != 0)
            sim_fail(s, "slice %" PRIu32 ", element %" PRIu32 " is %.9g, wanted %.9g", slice, i,
                     (double)newest->values[i], (double)want);
    }
}

static void check_initial(sim *s, uint32_t slice)
{
    for (uint32_t i = 0; i < s->plan->slices[slice].n_elems; i++) {
        float want = sim_oracle_initial(slice, i);
        if (memcmp(&want, &s->slices[slice].values[0][i], sizeof want) != 0)
            sim_fail(s, "version 0 of slice %" PRIu32 " is not what was sent", slice);
    }
}

void sim_oracle_look(sim *s, uint32_t index)
{
    const sim_ps *ps = &s->ps[index];
    if (!ps->running || s->plan == NULL || ps->store->generation != s->generation || ps->store->beginning)
        return;
    for (uint32_t i = 0; i < ps->store->n_slices && !s->failed; i++) {
        const sg_store_slice *slice = &ps->store->slices[i];
        if (slice->newest == NULL)
            continue;
        for (const sg_version *version = slice->older; version != NULL; version = version->next)
            remember(s, slice->index, version);
        remember(s, slice->index, slice->newest);
        if (!s->slices[slice->index].seen && s->slices[slice->index].known[0])
            check_initial(s, slice->index);
        if (s->scenario.async && !slice->variable->frozen)
            check_async(s, slice->index, slice->newest);
        else
            check_sync(s, index, slice->index, slice->newest->step);
        s->slices[slice->index].seen = true;
    }
}

/* What a worker has pulled is a version that a store has had, whole. */
void sim_oracle_pulled(sim *s, uint32_t worker, uint32_t slice, uint64_t version, const float *values)
{
    const sim_slice_record *record = &s->slices[slice];
    if (version > SIM_MAX_STEPS || !record->known[version])
        sim_fail(s, "worker %" PRIu32 " got version %" PRIu64 " of slice %" PRIu32 ", which was never seen", worker,
                 version, slice);
    else if (memcmp(record->values[version], values, s->plan->slices[slice].n_elems * sizeof(float)) != 0)
        sim_fail(s, "worker %" PRIu32 " got other values for version %" PRIu64 " of slice %" PRIu32, worker, version,
                 slice);
}

/* --- generations ------------------------------------------------------------------------------------------------ */

static void take_back(sim_slice_record *record, uint32_t slice, const sim_set *set)
{
    record->restored = set != NULL;
    record->n_counted = set == NULL ? 0 : set->steps[slice];
    for (uint32_t i = 0; i < SIM_SLICE_ELEMS; i++)
        record->expected[i] = set == NULL ? sim_oracle_initial(slice, i) : set->values[slice][i];
}

void sim_oracle_roll_back(sim *s, uint64_t generation, const sg_checkpoint_manifest *manifest, const sim_set *set)
{
    s->generation = generation;
    memset(s->indices, 0, sizeof s->indices);
    memset(s->hellos, 0, sizeof s->hellos);
    memset(s->clocks, 0, sizeof s->clocks);
    s->returned = (sg_workers){0};
    sim_ask_roll_back(s, manifest);
    for (uint32_t group = 0; group < s->scenario.n_groups; group++) {
        uint64_t first = manifest == NULL ? 0 : manifest->steps[group];
        for (uint64_t step = first; step < SIM_MAX_STEPS; step++)
            s->steps[group][step] = (sim_step_record){0};
    }
    for (uint32_t i = 0; s->plan != NULL && i < s->plan->n_slices; i++) {
        sim_slice_record *record = &s->slices[i];
        uint64_t step = manifest == NULL ? 0 : set->steps[i];
        take_back(record, i, manifest == NULL ? NULL : set);
        record->newest = step;
        for (uint64_t version = manifest == NULL ? 0 : step + 1; version <= SIM_MAX_STEPS; version++)
            record->known[version] = record->has_velocities[version] = false;
        record->seen = record->seen && manifest != NULL;
    }
}

void sim_oracle_level(sim *s, const sg_checkpoint_manifest *manifest)
{
    const bool was_async = manifest != NULL && strcmp(manifest->mode, "sync") != 0;
    for (uint32_t i = 0; was_async && !s->scenario.async && i < s->plan->n_slices; i++) {
        if (s->plan->slices[i].variable == SIM_FROZEN_VARIABLE)
            continue;
        const uint64_t step = manifest->steps[s->plan->slices[i].group];
        sim_slice_record *record = &s->slices[i];
        memset(record->known, 0, sizeof record->known);
        memcpy(record->values[step], record->expected, sizeof record->expected);
        record->known[step] = true;
        record->newest = step;
    }
}
