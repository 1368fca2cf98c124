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
    const sg_update_part *parts;
    size_t n_parts;
} pass;

SG_ISA_INLINE void sum_parts(const pass *p, size_t begin, size_t n, float *restrict sum)
{
    const float *first = p->parts[0].gradient + begin;
    float scale = p->parts[0].scale;
    for (size_t i = 0; i < n; i++)
        sum[i] = scale * first[i];
    for (size_t part = 1; part < p->n_parts; part++) {
        const float *gradient = p->parts[part].gradient + begin;
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
    sum_parts(p, begin, n, sum);
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

/* Infinities and NaNs are the numbers whose exponent bits are all ones. */
SG_ISA_INLINE bool copy_is_finite(const float *restrict from, float *restrict to, size_t n_elems)
{
    uint32_t found = 0;
    for (size_t begin = 0; begin < n_elems; begin += BLOCK_ELEMS) {
        size_t n = n_elems - begin < BLOCK_ELEMS ? n_elems - begin : BLOCK_ELEMS;
        uint32_t bits[BLOCK_ELEMS] __attribute__((aligned(64)));
        memcpy(bits, from + begin, n * sizeof(float));
        for (size_t i = 0; i < n; i++)
            found |= (bits[i] & 0x7f800000U) == 0x7f800000U;
        if (to)
            memcpy(to + begin, bits, n * sizeof(float));
    }
    return !found;
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
    }
/* clang-format on */
VERSION(portable, )
VERSION(avx2, SG_ISA_TARGET_AVX2)
VERSION(avx512, SG_ISA_TARGET_AVX512)

static const struct {
    void (*apply)(sg_rule rule, const sg_update_constants *c, const pass *p, size_t n_elems);
    bool (*copy_is_finite)(const float *from, float *to, size_t n_elems);
} versions[SG_ISA_COUNT] = {
    [SG_ISA_PORTABLE] = {apply_portable, copy_is_finite_portable},
    [SG_ISA_AVX2] = {apply_avx2, copy_is_finite_avx2},
    [SG_ISA_AVX512] = {apply_avx512, copy_is_finite_avx512},
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

void sg_update_apply_as(sg_isa isa, const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                        float *const slots[SG_UPDATE_MAX_SLOTS], const sg_update_part *parts, size_t n_parts)
{
    SG_ASSERT(sg_isa_has(isa) && n_parts >= 1 && update->count >= 1);
    sg_update_constants constants = sg_update_constants_of(update);
    pass p = {.old_values = old_values, .new_values = new_values, .parts = parts, .n_parts = n_parts};
    for (size_t i = 0; i < sg_update_slots(update->rule); i++)
        p.slots[i] = slots[i];
    versions[isa].apply(update->rule, &constants, &p, n_elems);
}

void sg_update_apply(const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                     float *const slots[SG_UPDATE_MAX_SLOTS], const sg_update_part *parts, size_t n_parts)
{
    sg_update_apply_as(sg_isa_best(), update, n_elems, old_values, new_values, slots, parts, n_parts);
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
