/* kernels/update.c - see update.h. The loops stand in update_pass.c. */
#include "kernels/update.h"

#include "common/status.h"
#include "kernels/update_pass.h"

/* More contributions than fit into one loop are summed in blocks that stay in the first-level cache. */
#define BLOCK_ELEMS ((size_t)1024)

size_t sg_update_slots(sg_rule rule)
{
    return sg_update_slots_of(rule);
}

static bool is_one_of(sg_rule rule, sg_rule a, sg_rule b)
{
    return rule == a || rule == b;
}

bool sg_update_same_slots(sg_rule one, sg_rule other)
{
    return one == other ||
           (is_one_of(one, SG_RULE_MOMENTUM, SG_RULE_NESTEROV) &&
            is_one_of(other, SG_RULE_MOMENTUM, SG_RULE_NESTEROV)) ||
           (is_one_of(one, SG_RULE_ADAM, SG_RULE_ADAMW) && is_one_of(other, SG_RULE_ADAM, SG_RULE_ADAMW));
}

bool sg_update_scales(const uint64_t *weights, size_t n, float *scales)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)weights[i];
    for (size_t i = 0; i < n; i++)
        scales[i] = weights[i] ? (float)((double)weights[i] / sum) : 0;
    return sum > 0;
}

/* What is the same for all blocks. */
typedef struct pass {
    const sg_update_variant *variant;
    sg_rule rule;
    sg_update_constants constants;
    sg_update_part *parts;
    size_t n_parts;
} pass;

static void add_part(sg_update_group *group, sg_span_reader *gradient, float scale)
{
    group->gradients[group->n] = gradient;
    group->scales[group->n++] = scale;
}

/* At most BLOCK_ELEMS elements where there are more contributions than one group. From the second group on, the sum so
 * far is the first part: 1 * sum is the sum, bit for bit. Returns whether all sums are finite. */
static bool apply_block(const pass *p, const sg_update_arrays *arrays, size_t n_elems)
{
    float sums[BLOCK_ELEMS] __attribute__((aligned(64)));
    sg_update_group group = {0};
    sg_span span;
    sg_span_reader so_far;
    for (size_t i = 0; i < p->n_parts; i++) {
        if (group.n == SG_UPDATE_GROUP) {
            p->variant->sum(&group, sums, n_elems);
            so_far = sg_span_reader_of_array(&span, sums, n_elems * sizeof(float));
            group.n = 0;
            add_part(&group, &so_far, 1);
        }
        add_part(&group, &p->parts[i].gradient, p->parts[i].scale);
    }
    return p->variant->apply(p->rule, &p->constants, &group, arrays, n_elems);
}

static bool apply_blocks(const pass *p, const sg_update_arrays *arrays, size_t n_elems)
{
    bool finite = true;
    size_t n;
    for (size_t begin = 0; begin < n_elems; begin += n) {
        n = n_elems - begin < BLOCK_ELEMS ? n_elems - begin : BLOCK_ELEMS;
        sg_update_arrays block = {.old_values = arrays->old_values + begin, .new_values = arrays->new_values + begin};
        for (size_t i = 0; i < sg_update_slots(p->rule); i++)
            block.slots[i] = arrays->slots[i] + begin;
        finite = apply_block(p, &block, n) && finite;
    }
    return finite;
}

/* The sums are finite if all contributions are. If some sum is not (which is rare), a second look at the contributions
 * finds whether it was one of them, or only a sum that grew too large. */
static bool look_again(const pass *p, size_t n_elems)
{
    bool finite = true;
    for (size_t i = 0; i < p->n_parts; i++) {
        sg_update_part *part = &p->parts[i];
        if (!part->look)
            continue;
        sg_span_reader_back(&part->gradient, n_elems * sizeof(float));
        finite = p->variant->is_finite(&part->gradient, n_elems) && finite;
    }
    return finite;
}

bool sg_update_apply_as(sg_isa isa, const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                        float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts)
{
    SG_ASSERT(n_parts >= 1 && update->count >= 1);
    pass p = {.variant = sg_update_pass_variant(isa),
              .rule = update->rule,
              .constants = sg_update_constants_of(update),
              .parts = parts,
              .n_parts = n_parts};
    sg_update_arrays arrays = {.old_values = old_values, .new_values = new_values};
    size_t n_slots = sg_update_slots(update->rule);
    for (size_t i = 0; i < n_slots; i++)
        arrays.slots[i] = slots[i];
    for (size_t i = 0; i < n_parts; i++)
        SG_ASSERT(parts[i].gradient.left >= n_elems * sizeof(float) && (n_slots == 0 || !parts[i].look));
    bool sums_are_finite =
        n_parts <= SG_UPDATE_GROUP ? apply_block(&p, &arrays, n_elems) : apply_blocks(&p, &arrays, n_elems);
    return sums_are_finite || look_again(&p, n_elems);
}

bool sg_update_apply(const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                     float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts)
{
    return sg_update_apply_as(sg_isa_best(), update, n_elems, old_values, new_values, slots, parts, n_parts);
}

bool sg_update_spans_are_finite_as(sg_isa isa, sg_span_reader reader, size_t n_elems)
{
    SG_ASSERT(reader.left >= n_elems * sizeof(float));
    return sg_update_pass_variant(isa)->is_finite(&reader, n_elems);
}

bool sg_update_spans_are_finite(sg_span_reader reader, size_t n_elems)
{
    return sg_update_spans_are_finite_as(sg_isa_best(), reader, n_elems);
}

bool sg_update_copy_is_finite_as(sg_isa isa, const float *from, float *to, size_t n_elems)
{
    return sg_update_pass_variant(isa)->copy_is_finite(from, to, n_elems);
}

bool sg_update_copy_is_finite(const float *from, float *to, size_t n_elems)
{
    return sg_update_copy_is_finite_as(sg_isa_best(), from, to, n_elems);
}

double sg_update_squares_as(sg_isa isa, const float *x, size_t n_elems)
{
    return sg_update_pass_variant(isa)->squares(x, n_elems);
}

double sg_update_squares(const float *x, size_t n_elems)
{
    return sg_update_squares_as(sg_isa_best(), x, n_elems);
}
