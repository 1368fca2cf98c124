/* sim_rules.c - see sim_oracle.h: what a step makes of a slice, worked out element by element from the contributions
 * that were taken, the hyper-parameters that the ps were told and the formulas of protocol and papers.
 *
 * Sync: version s+1 is the rule applied once to version s and to each contribution, in the order of worker indices: the
 * same bits whatever arrived first and however many ps there are. Norms are added up over all ps in another order and
 * precision. Async: gradients are integers, subtracted one after the other; but the averaged variable moves towards
 * each. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/status.h"

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
static uint64_t integer_of(uint64_t incarnation, uint64_t step, uint32_t slice, uint32_t elem)
{
    return 1 + mix(incarnation * 1000003 + step * 4099 + slice * 61 + elem) % ELEM_RANGE;
}

float sim_rules_computed(uint64_t incarnation, uint64_t step, uint32_t slice, uint32_t elem)
{
    return (float)integer_of(incarnation, step, slice, elem);
}

float sim_rules_initial(uint32_t slice, uint32_t elem)
{
    return (float)(mix(slice * 1000 + elem + 77) % ELEM_RANGE);
}

bool sim_rules_is_averaged(const sim *s, uint32_t slice)
{
    return s->plan->slices[slice].variable == SIM_AVERAGED_VARIABLE;
}

/* The nearest integer of eight binary digits and zeros after them, the even one of two. */
static uint64_t narrowed(uint64_t x)
{
    uint64_t unit = 1;
    while (x / unit >= 256)
        unit *= 2;
    const uint64_t down = x / unit, rest = x % unit;
    const bool up = 2 * rest > unit || (2 * rest == unit && down % 2 == 1);
    return (down + up) * unit;
}

/* As it arrives. */
static float pushed(const sim *s, uint64_t incarnation, uint64_t step, uint32_t slice, uint32_t elem)
{
    const uint64_t x = integer_of(incarnation, step, slice, elem);
    const bool narrow = s->config->update.wire == SG_WIRE_BF16 && !sim_rules_is_averaged(s, slice);
    return (float)(narrow ? narrowed(x) : x);
}

/* --- contributions ---------------------------------------------------------------------------------------------- */

uint32_t sim_rules_contributors(const sim_step_record *record, uint32_t slice,
                                const sim_contribution *list[SIM_MAX_CONTRIBUTIONS])
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

typedef struct mean {
    bool any; /* somebody's examples count */
    float elems[SIM_SLICE_ELEMS];
} mean;

static mean mean_of(const sim *s, const sim_step_record *record, uint64_t step, uint32_t slice)
{
    const sim_contribution *list[SIM_MAX_CONTRIBUTIONS];
    const uint32_t n = sim_rules_contributors(record, slice, list);
    uint64_t total = 0;
    mean out = {.any = false};
    for (uint32_t i = 0; i < n; i++)
        total += list[i]->weight;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i]->weight == 0)
            continue;
        const float scale = (float)((double)list[i]->weight / (double)total);
        for (uint32_t k = 0; k < s->plan->slices[slice].n_elems; k++) {
            const float g = pushed(s, list[i]->incarnation, step, slice, k);
            out.elems[k] = out.any ? fmaf(scale, g, out.elems[k]) : scale * g;
        }
        out.any = true;
    }
    return out;
}

/* --- rules ------------------------------------------------------------------------------------------------------ */

static const Shardgrad__V1__Hyper *hyper_of(const sim *s, const sim_step_record *record)
{
    static const Shardgrad__V1__Hyper none = SHARDGRAD__V1__HYPER__INIT;
    return record->hyper == 0 || record->hyper > SIM_MAX_HYPERS ? &none : &s->hypers.sets[record->hyper - 1];
}

size_t sim_rules_n_slots(const sim *s)
{
    switch (s->scenario.rule) {
    case SG_RULE_MOMENTUM:
    case SG_RULE_LARS:
        return 1;
    case SG_RULE_LAMB:
        return 2;
    default: /* sgd is the only other one that there is */
        return 0;
    }
}

static bool scales_variables(const sim *s)
{
    return s->scenario.rule == SG_RULE_LARS || s->scenario.rule == SG_RULE_LAMB;
}

bool sim_rules_takes_norms(sim *s, const sim_step_record *record)
{
    return !s->scenario.async && (scales_variables(s) || hyper_of(s, record)->clip_global_norm > 0);
}

/* Of one application to one slice; the numbers of the papers, rounded to float where the kernels do. */
typedef struct lamb {
    float rest1, rest2, beta2, unbias, root, epsilon;
} lamb;

static lamb lamb_of(const Shardgrad__V1__Hyper *hyper, uint64_t count)
{
    const double beta1 = hyper->beta1, beta2 = hyper->beta2;
    return (lamb){.rest1 = (float)(1 - beta1),
                  .rest2 = (float)(1 - beta2),
                  .beta2 = hyper->beta2,
                  .unbias = (float)(1 / (1 - pow(beta1, (double)count))),
                  .root = (float)sqrt(1 - pow(beta2, (double)count)),
                  .epsilon = hyper->epsilon};
}

/* The slots of an element become those of the next version. */
static float lamb_direction(const lamb *l, float g, float *first, float *second)
{
    *first = fmaf(l->rest1, g - *first, *first);
    *second = fmaf(l->rest2 * g, g, l->beta2 * *second);
    return l->unbias * *first / (sqrtf(*second) / l->root + l->epsilon);
}

/* What the norms of a step are of: the mean gradient, or lamb's direction. slots: of the version before, and then of
 * the next. */
static mean made_of(sim *s, const sim_step_record *record, uint64_t step, uint32_t slice, sim_slots slots)
{
    mean out = mean_of(s, record, step, slice);
    if (!out.any || s->scenario.rule != SG_RULE_LAMB || sim_rules_is_averaged(s, slice))
        return out;
    const lamb l = lamb_of(hyper_of(s, record), step + 1 - s->slices[slice].uncounted);
    for (uint32_t k = 0; k < s->plan->slices[slice].n_elems; k++)
        out.elems[k] = lamb_direction(&l, out.elems[k], &slots[0][k], &slots[1][k]);
    return out;
}

/* --- norms ------------------------------------------------------------------------------------------------------ */

typedef struct squares {
    long double all;          /* of what the group's slices made */
    long double made, values; /* of the variable of two dimensions */
} squares;

static bool knows(const sim *s, uint32_t slice, uint64_t step)
{
    const sim_slice_record *record = &s->slices[slice];
    return record->known[step] && (sim_rules_n_slots(s) == 0 || record->has_slots[step]);
}

static void add_squares(sim *s, const sim_step_record *record, uint64_t step, uint32_t slice, squares *to)
{
    sim_slots slots;
    if (sim_rules_n_slots(s) > 0)
        memcpy(slots, s->slices[slice].slots[step], sizeof slots);
    const mean made = made_of(s, record, step, slice, slots);
    const bool is_matrix = s->plan->slices[slice].variable == SIM_MATRIX_VARIABLE;
    for (uint32_t k = 0; k < s->plan->slices[slice].n_elems; k++) {
        const long double g = made.any ? made.elems[k] : 0, w = s->slices[slice].values[step][k];
        to->all += g * g;
        to->made += is_matrix ? g * g : 0;
        to->values += is_matrix ? w * w : 0;
    }
}

static sim_scales work_out(sim *s, uint32_t group, uint64_t step)
{
    const sim_step_record *record = &s->steps[group][step];
    const Shardgrad__V1__Hyper *hyper = hyper_of(s, record);
    sim_scales out = {.known = true, .worked_out = true, .clip = 1, .matrix_rate = record->learning_rate};
    squares sums = {0};
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++) {
        const sg_plan_slice *planned = &s->plan->slices[slice];
        if (planned->group != group || planned->variable == SIM_FROZEN_VARIABLE || sim_rules_is_averaged(s, slice))
            continue;
        if (!knows(s, slice, step))
            return (sim_scales){.worked_out = true};
        add_squares(s, record, step, slice, &sums);
    }
    long double factor = 1;
    if (hyper->clip_global_norm > 0)
        factor = fminl((long double)hyper->clip_global_norm / (sqrtl(sums.all) + 1e-6L), 1);
    const long double trust = s->scenario.rule == SG_RULE_LARS ? (long double)hyper->trust : 1;
    if (scales_variables(s) && sums.values > 0 && sums.made > 0)
        out.matrix_rate =
            (float)((long double)record->learning_rate * trust * sqrtl(sums.values) / (factor * sqrtl(sums.made)));
    out.clip = (float)factor;
    return out;
}

/* Once for all slices of the group: when one of them has its next version, all that counts has been counted. */
static const sim_scales *scales_of(sim *s, uint32_t group, uint64_t step)
{
    static const sim_scales none = {.known = true, .worked_out = true, .clip = 1};
    sim_step_record *record = sim_oracle_record(s, group, step);
    if (!sim_rules_takes_norms(s, record))
        return &none;
    if (!record->scales.worked_out)
        record->scales = work_out(s, group, step);
    return &record->scales;
}

/* --- versions --------------------------------------------------------------------------------------------------- */

/* g: the mean, clipped; lamb: the direction. Lars: the rate stays in the velocity. */
static float next_value(sg_rule rule, float rate, float momentum, float g, float old, float *velocity)
{
    switch (rule) {
    case SG_RULE_LARS:
        *velocity = fmaf(rate, g, momentum * *velocity);
        return old - *velocity;
    case SG_RULE_MOMENTUM:
        *velocity = fmaf(momentum, *velocity, g);
        return fmaf(-rate, *velocity, old);
    default:
        return fmaf(-rate, g, old);
    }
}

bool sim_rules_make(sim *s, uint32_t slice, uint64_t step, float values[SIM_SLICE_ELEMS], sim_slots slots)
{
    const sim_slice_record *from = &s->slices[slice];
    const sg_plan_slice *planned = &s->plan->slices[slice];
    const sim_step_record *record = sim_oracle_record(s, planned->group, step);
    memcpy(values, from->values[step], sizeof from->values[step]);
    if (sim_rules_n_slots(s) > 0)
        memcpy(slots, from->slots[step], sizeof(sim_slots));
    if (sim_rules_is_averaged(s, slice)) {
        const mean theirs = mean_of(s, record, step, slice);
        if (theirs.any)
            memcpy(values, theirs.elems, sizeof theirs.elems);
        return true;
    }
    const sim_scales *scales = scales_of(s, planned->group, step);
    if (!scales->known || !knows(s, slice, step))
        return false;
    const mean made = made_of(s, record, step, slice, slots);
    const bool is_scaled = scales_variables(s) && planned->variable == SIM_MATRIX_VARIABLE;
    const float rate = is_scaled ? scales->matrix_rate : record->learning_rate,
                momentum = hyper_of(s, record)->momentum;
    for (uint32_t k = 0; k < planned->n_elems && made.any; k++)
        values[k] = next_value(s->scenario.rule, rate, momentum, scales->clip * made.elems[k], values[k], &slots[0][k]);
    return true;
}

void sim_rules_make_alone(const sim *s, const Shardgrad__V1__PushRequest *push, uint32_t slice, uint64_t n_live,
                          float values[SIM_SLICE_ELEMS])
{
    for (uint32_t k = 0; k < s->plan->slices[slice].n_elems; k++) {
        const float g = pushed(s, push->incarnation, push->steps[0], slice, k);
        if (!sim_rules_is_averaged(s, slice))
            values[k] = fmaf(-push->step->learning_rate, g, values[k]);
        else
            values[k] = n_live > 1 ? fmaf(1.0f / (float)n_live, g - values[k], values[k]) : g;
    }
}
