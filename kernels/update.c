/* kernels/update.c - the fused pass, in blocks that stay in the first-level cache.
 *
 * Per block the contributions are summed into a buffer on the stack and the rule is applied to it, so each array is
 * read or written once. */
#include "kernels/update.h"

#include <string.h>

#include "common/status.h"
#include "kernels/update_rules.h"

#define BLOCK_ELEMS ((size_t)1024)

/* What a pass works on; all arrays begin at the same element. */
typedef struct pass {
    const float *old_values;
    float *new_values;
    float *slots[SG_UPDATE_MAX_SLOTS];
    sg_update_part *parts;
    size_t n_parts;
} pass;

/* Infinities and NaNs are the numbers whose exponent bits are all ones. */
SG_ISA_INLINE bool block_is_finite(const float *restrict x, size_t n)
{
    uint32_t bits[BLOCK_ELEMS] __attribute__((aligned(64)));
    uint32_t found = 0;
    memcpy(bits, x, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        found |= (bits[i] & 0x7f800000U) == 0x7f800000U;
    return !found;
}

/* The next n elements of a contribution, looked at where that is asked for. */
SG_ISA_INLINE void read_part(sg_update_part *part, size_t n, float *restrict gradient)
{
    sg_span_reader_read(&part->gradient, gradient, n * sizeof(float));
    if (part->look)
        part->finite = block_is_finite(gradient, n) && part->finite;
}

SG_ISA_INLINE void sum_parts(const pass *p, size_t n, float *restrict sum)
{
    float gradient[BLOCK_ELEMS] __attribute__((aligned(64)));
    read_part(&p->parts[0], n, gradient);
    float scale = p->parts[0].scale;
    for (size_t i = 0; i < n; i++)
        sum[i] = scale * gradient[i];
    for (size_t part = 1; part < p->n_parts; part++) {
        read_part(&p->parts[part], n, gradient);
        scale = p->parts[part].scale;
        for (size_t i = 0; i < n; i++)
            sum[i] = fmaf(scale, gradient[i], sum[i]);
    }
}

/* old_values may be new_values, which each loop allows: element i is read before it is written. It is loaded to the
 * stack first, so that the compiler need not prove it. */
SG_ISA_INLINE void apply_block(sg_rule rule, const sg_update_constants *c, const pass *p, size_t begin, size_t n)
{
    float sum[BLOCK_ELEMS] __attribute__((aligned(64)));
    float old[BLOCK_ELEMS] __attribute__((aligned(64)));
    sum_parts(p, n, sum);
    memcpy(old, p->old_values + begin, n * sizeof(float));
    float *restrict w = p->new_values + begin;
    switch (rule) {
    case SG_RULE_SGD:
        for (size_t i = 0; i < n; i++)
            w[i] = sg_update_sgd(c, old[i], sum[i]);
        break;
    case SG_RULE_MOMENTUM: {
        float *restrict velocity = p->slots[0] + begin;
        for (size_t i = 0; i < n; i++)
            w[i] = sg_update_momentum(c, old[i], sum[i], &velocity[i]);
        break;
    }
    case SG_RULE_NESTEROV: {
        float *restrict velocity = p->slots[0] + begin;
        for (size_t i = 0; i < n; i++)
            w[i] = sg_update_nesterov(c, old[i], sum[i], &velocity[i]);
        break;
    }
    case SG_RULE_ADAM: {
        float *restrict first = p->slots[0] + begin;
        float *restrict second = p->slots[1] + begin;
        for (size_t i = 0; i < n; i++)
            w[i] = sg_update_adam(c, old[i], sum[i], &first[i], &second[i]);
        break;
    }
    }
}

SG_ISA_INLINE void apply_all(sg_rule rule, const sg_update_constants *c, const pass *p, size_t n_elems)
{
    for (size_t begin = 0; begin < n_elems; begin += BLOCK_ELEMS)
        apply_block(rule, c, p, begin, n_elems - begin < BLOCK_ELEMS ? n_elems - begin : BLOCK_ELEMS);
}

SG_ISA_INLINE bool copy_is_finite(const float *restrict from, float *restrict to, size_t n_elems)
{
    bool finite = true;
    for (size_t begin = 0; begin < n_elems; begin += BLOCK_ELEMS) {
        size_t n = n_elems - begin < BLOCK_ELEMS ? n_elems - begin : BLOCK_ELEMS;
        finite = block_is_finite(from + begin, n) && finite;
        if (to)
            memcpy(to + begin, from + begin, n * sizeof(float));
    }
    return finite;
}

SG_ISA_INLINE bool spans_are_finite(sg_span_reader *reader, size_t n_elems)
{
    bool finite = true;
    for (size_t begin = 0; begin < n_elems; begin += BLOCK_ELEMS) {
        size_t n = n_elems - begin < BLOCK_ELEMS ? n_elems - begin : BLOCK_ELEMS;
        float block[BLOCK_ELEMS] __attribute__((aligned(64)));
        sg_span_reader_read(reader, block, n * sizeof(float));
        finite = block_is_finite(block, n) && finite;
    }
    return finite;
}

/* clang-format off */
#define VERSION(name, target)                                                                                          \
    target static void apply_##name(sg_rule rule, const sg_update_constants *c, const pass *p, size_t n_elems)         \
    {                                                                                                                  \
        switch (rule) { /* a constant per call, so that each loop is compiled for its rule */                          \
        case SG_RULE_SGD: apply_all(SG_RULE_SGD, c, p, n_elems); break;                                                \
        case SG_RULE_MOMENTUM: apply_all(SG_RULE_MOMENTUM, c, p, n_elems); break;                                      \
        case SG_RULE_NESTEROV: apply_all(SG_RULE_NESTEROV, c, p, n_elems); break;                                      \
        case SG_RULE_ADAM: apply_all(SG_RULE_ADAM, c, p, n_elems); break;                                              \
        }                                                                                                              \
    }                                                                                                                  \
    target static bool copy_is_finite_##name(const float *from, float *to, size_t n_elems)                             \
    {                                                                                                                  \
        return copy_is_finite(from, to, n_elems);                                                                      \
    }                                                                                                                  \
    target static bool spans_are_finite_##name(sg_span_reader *reader, size_t n_elems)                                 \
    {                                                                                                                  \
        return spans_are_finite(reader, n_elems);                                                                      \
    }
/* clang-format on */
VERSION(portable, )
VERSION(avx2, SG_ISA_TARGET_AVX2)
VERSION(avx512, SG_ISA_TARGET_AVX512)

static const struct {
    void (*apply)(sg_rule rule, const sg_update_constants *c, const pass *p, size_t n_elems);
    bool (*copy_is_finite)(const float *from, float *to, size_t n_elems);
    bool (*spans_are_finite)(sg_span_reader *reader, size_t n_elems);
} versions[SG_ISA_COUNT] = {
    [SG_ISA_PORTABLE] = {apply_portable, copy_is_finite_portable, spans_are_finite_portable},
    [SG_ISA_AVX2] = {apply_avx2, copy_is_finite_avx2, spans_are_finite_avx2},
    [SG_ISA_AVX512] = {apply_avx512, copy_is_finite_avx512, spans_are_finite_avx512},
};

size_t sg_update_slots(sg_rule rule)
{
    switch (rule) {
    case SG_RULE_SGD:
        return 0;
    case SG_RULE_MOMENTUM:
    case SG_RULE_NESTEROV:
        return 1;
    case SG_RULE_ADAM:
        return 2;
    }
    return 0;
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

bool sg_update_apply_as(sg_isa isa, const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                        float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts)
{
    SG_ASSERT(sg_isa_has(isa) && n_parts >= 1 && update->count >= 1);
    sg_update_constants constants = sg_update_constants_of(update);
    pass p = {.old_values = old_values, .new_values = new_values, .parts = parts, .n_parts = n_parts};
    size_t n_slots = sg_update_slots(update->rule);
    for (size_t i = 0; i < n_slots; i++)
        p.slots[i] = slots[i];
    for (size_t i = 0; i < n_parts; i++) {
        SG_ASSERT(parts[i].gradient.left >= n_elems * sizeof(float) && (n_slots == 0 || !parts[i].look));
        parts[i].finite = parts[i].finite || parts[i].look;
    }
    versions[isa].apply(update->rule, &constants, &p, n_elems);
    bool finite = true;
    for (size_t i = 0; i < n_parts; i++)
        finite = finite && (!parts[i].look || parts[i].finite);
    return finite;
}

bool sg_update_apply(const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                     float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts)
{
    return sg_update_apply_as(sg_isa_best(), update, n_elems, old_values, new_values, slots, parts, n_parts);
}

bool sg_update_spans_are_finite_as(sg_isa isa, sg_span_reader reader, size_t n_elems)
{
    SG_ASSERT(sg_isa_has(isa) && reader.left >= n_elems * sizeof(float));
    return versions[isa].spans_are_finite(&reader, n_elems);
}

bool sg_update_spans_are_finite(sg_span_reader reader, size_t n_elems)
{
    return sg_update_spans_are_finite_as(sg_isa_best(), reader, n_elems);
}

bool sg_update_copy_is_finite_as(sg_isa isa, const float *from, float *to, size_t n_elems)
{
    SG_ASSERT(sg_isa_has(isa));
    return versions[isa].copy_is_finite(from, to, n_elems);
}

bool sg_update_copy_is_finite(const float *from, float *to, size_t n_elems)
{
    return sg_update_copy_is_finite_as(sg_isa_best(), from, to, n_elems);
}
