/* kernels/update_pass.c - see update_pass.h.
 *
 * The elements are worked through in runs. In a run each contribution lies whole in one span, whose bytes the loop
 * reads where they are, however they are aligned. Where a span ends, one cache line of that contribution is gathered,
 * the element that straddles two spans with it. Runs are whole cache lines, so that values and slots stay aligned.
 * Within a loop all arrays are read side by side, which is what the processor's prefetching is good at. */
#include "kernels/update_pass.h"

#include <string.h>

#include "common/status.h"

#define LINE_ELEMS ((size_t)16)
#define LINE_BYTES (LINE_ELEMS * sizeof(float))

/* Where the next elements of each contribution lie. */
typedef struct run {
    const uint8_t *gradients[SG_UPDATE_GROUP];
    uint8_t gathered[SG_UPDATE_GROUP][LINE_BYTES];
} run;

/* Bytes of the reader that lie in one piece. */
static size_t whole_bytes(sg_span_reader *reader)
{
    while (reader->offset == reader->spans[reader->index].n_bytes) {
        reader->index++;
        reader->offset = 0;
    }
    return reader->spans[reader->index].n_bytes - reader->offset;
}

/* Returns the number of elements, from 1 to n_elems. */
static size_t find_run(sg_update_group *group, size_t n_elems, run *r)
{
    size_t whole[SG_UPDATE_GROUP];
    size_t n = n_elems;
    for (size_t i = 0; i < group->n; i++) {
        whole[i] = whole_bytes(group->gradients[i]);
        if (whole[i] < n * sizeof(float))
            n = whole[i] < LINE_BYTES ? LINE_ELEMS : whole[i] / LINE_BYTES * LINE_ELEMS;
        n = n < n_elems ? n : n_elems;
    }
    size_t n_bytes = n * sizeof(float);
    for (size_t i = 0; i < group->n; i++) {
        sg_span_reader *reader = group->gradients[i];
        if (whole[i] < n_bytes) {
            r->gradients[i] = r->gathered[i];
            sg_span_reader_read(reader, r->gathered[i], n_bytes);
        } else {
            r->gradients[i] = reader->spans[reader->index].data + reader->offset;
            reader->offset += n_bytes;
            reader->left -= n_bytes;
        }
    }
    return n;
}

SG_ISA_INLINE float load(const uint8_t *from, size_t i)
{
    float x;
    memcpy(&x, from + i * sizeof x, sizeof x);
    return x;
}

/* Bit 31 is set for infinities and NaNs, whose exponent bits are all ones; the others are noise. */
SG_ISA_INLINE uint32_t not_finite(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000U) + 0x00800000U;
}

SG_ISA_INLINE bool none_found(uint32_t found)
{
    return !(found >> 31);
}

SG_ISA_INLINE float sum_at(const uint8_t *const gradients[], const float scales[], size_t n_parts, size_t i)
{
    float sum = scales[0] * load(gradients[0], i);
    for (size_t part = 1; part < n_parts; part++)
        sum = fmaf(scales[part], load(gradients[part], i), sum);
    return sum;
}

/* rule and n_parts are constants where this is called, so that each pair of them becomes a loop of its own. */
SG_ISA_INLINE uint32_t apply_run(sg_rule rule, const sg_update_constants *constants, size_t n_parts,
                                 const sg_update_group *group, const run *r, const sg_update_arrays *arrays,
                                 size_t begin, size_t n)
{
    const sg_update_constants c = *constants;
    const uint8_t *gradients[SG_UPDATE_GROUP];
    float scales[SG_UPDATE_GROUP];
    for (size_t part = 0; part < n_parts; part++) {
        gradients[part] = r->gradients[part];
        scales[part] = group->scales[part];
    }
    size_t n_slots = sg_update_slots_of(rule);
    const float *old = arrays->old_values + begin;
    float *w = arrays->new_values + begin;
    float *first = n_slots > 0 ? arrays->slots[0] + begin : NULL;
    float *second = n_slots > 1 ? arrays->slots[1] + begin : NULL;
    uint32_t found = 0;
    SG_ISA_LOOP /* w may be old or a gradient, element by element; nothing else overlaps */
    for (size_t i = 0; i < n; i++) {
        float g = sum_at(gradients, scales, n_parts, i);
        switch (rule) {
        case SG_RULE_SGD:
            found |= not_finite(g);
            w[i] = sg_update_sgd(&c, old[i], g);
            break;
        case SG_RULE_MOMENTUM:
            w[i] = sg_update_momentum(&c, old[i], g, &first[i]);
            break;
        case SG_RULE_NESTEROV:
            w[i] = sg_update_nesterov(&c, old[i], g, &first[i]);
            break;
        case SG_RULE_ADAGRAD:
            w[i] = sg_update_adagrad(&c, old[i], g, &first[i]);
            break;
        case SG_RULE_RMSPROP:
            w[i] = sg_update_rmsprop(&c, old[i], g, &first[i]);
            break;
        case SG_RULE_ADAM:
            w[i] = sg_update_adam(&c, old[i], g, &first[i], &second[i]);
            break;
        case SG_RULE_ADAMW:
            w[i] = sg_update_adamw(&c, old[i], g, &first[i], &second[i]);
            break;
        case SG_RULE_AVERAGE:
            found |= not_finite(g);
            w[i] = sg_update_average(&c, old[i], g);
            break;
        case SG_RULE_LARS:
            w[i] = sg_update_lars(&c, old[i], g, &first[i]);
            break;
        case SG_RULE_LAMB:
            w[i] = sg_update_lamb(&c, old[i], g, &first[i], &second[i]);
            break;
        }
    }
    return found;
}

SG_ISA_INLINE bool apply_runs(sg_rule rule, const sg_update_constants *c, size_t n_parts, sg_update_group *group,
                              const sg_update_arrays *arrays, size_t n_elems)
{
    uint32_t found = 0;
    size_t n;
    run r;
    for (size_t begin = 0; begin < n_elems; begin += n) {
        n = find_run(group, n_elems - begin, &r);
        found |= apply_run(rule, c, n_parts, group, &r, arrays, begin, n);
    }
    return none_found(found);
}

SG_ISA_INLINE bool apply_rule(sg_rule rule, const sg_update_constants *c, sg_update_group *group,
                              const sg_update_arrays *arrays, size_t n_elems)
{
    switch (group->n) {
    case 1:
        return apply_runs(rule, c, 1, group, arrays, n_elems);
    case 2:
        return apply_runs(rule, c, 2, group, arrays, n_elems);
    case 3:
        return apply_runs(rule, c, 3, group, arrays, n_elems);
    case 4:
        return apply_runs(rule, c, 4, group, arrays, n_elems);
    case 5:
        return apply_runs(rule, c, 5, group, arrays, n_elems);
    case 6:
        return apply_runs(rule, c, 6, group, arrays, n_elems);
    case 7:
        return apply_runs(rule, c, 7, group, arrays, n_elems);
    case SG_UPDATE_GROUP:
        return apply_runs(rule, c, SG_UPDATE_GROUP, group, arrays, n_elems);
    }
    SG_ASSERT(false);
    return false;
}

SG_ISA_INLINE void sum_runs(sg_update_group *group, float *sums, size_t n_elems)
{
    run r;
    size_t n;
    for (size_t begin = 0; begin < n_elems; begin += n) {
        n = find_run(group, n_elems - begin, &r);
        float *out = sums + begin;
        SG_ISA_LOOP
        for (size_t i = 0; i < n; i++)
            out[i] = sum_at(r.gradients, group->scales, SG_UPDATE_GROUP, i);
    }
}

SG_ISA_INLINE bool is_finite(sg_span_reader *gradient, size_t n_elems)
{
    sg_update_group group = {.n = 1, .gradients = {gradient}};
    uint32_t found = 0;
    run r;
    size_t n;
    for (size_t begin = 0; begin < n_elems; begin += n) {
        n = find_run(&group, n_elems - begin, &r);
        const uint8_t *from = r.gradients[0];
        for (size_t i = 0; i < n; i++)
            found |= not_finite(load(from, i));
    }
    return none_found(found);
}

SG_ISA_INLINE bool copy_is_finite(const float *restrict from, float *restrict to, size_t n_elems)
{
    uint32_t found = 0;
    if (to)
        for (size_t i = 0; i < n_elems; i++) {
            found |= not_finite(from[i]);
            to[i] = from[i];
        }
    else
        for (size_t i = 0; i < n_elems; i++)
            found |= not_finite(from[i]);
    return none_found(found);
}

/* Of so many sums one is each element's, by its place; so the order is the same for every vector width. The square of a
 * float is exact in double. */
#define N_SUMS ((size_t)32)

SG_ISA_INLINE double squares(const float *x, size_t n_elems)
{
    double sums[N_SUMS] = {0};
    size_t begin = 0;
    for (; n_elems - begin >= N_SUMS; begin += N_SUMS) {
        SG_ISA_LOOP
        for (size_t i = 0; i < N_SUMS; i++)
            sums[i] += (double)x[begin + i] * (double)x[begin + i];
    }
    for (size_t i = 0; begin + i < n_elems; i++)
        sums[i] += (double)x[begin + i] * (double)x[begin + i];
    for (size_t n = N_SUMS / 2; n > 0; n /= 2) {
        for (size_t i = 0; i < n; i++)
            sums[i] += sums[n + i];
    }
    return sums[0];
}

/* clang-format off */
#define VARIANT(name, target)                                                                                          \
    target static bool apply_##name(sg_rule rule, const sg_update_constants *c, sg_update_group *group,                \
                                    const sg_update_arrays *arrays, size_t n_elems)                                    \
    {                                                                                                                  \
        switch (rule) { /* a constant per call, so that each loop is compiled for its rule */                          \
        case SG_RULE_SGD: return apply_rule(SG_RULE_SGD, c, group, arrays, n_elems);                                   \
        case SG_RULE_MOMENTUM: return apply_rule(SG_RULE_MOMENTUM, c, group, arrays, n_elems);                         \
        case SG_RULE_NESTEROV: return apply_rule(SG_RULE_NESTEROV, c, group, arrays, n_elems);                         \
        case SG_RULE_ADAGRAD: return apply_rule(SG_RULE_ADAGRAD, c, group, arrays, n_elems);                           \
        case SG_RULE_RMSPROP: return apply_rule(SG_RULE_RMSPROP, c, group, arrays, n_elems);                           \
        case SG_RULE_ADAM: return apply_rule(SG_RULE_ADAM, c, group, arrays, n_elems);                                 \
        case SG_RULE_ADAMW: return apply_rule(SG_RULE_ADAMW, c, group, arrays, n_elems);                               \
        case SG_RULE_AVERAGE: return apply_rule(SG_RULE_AVERAGE, c, group, arrays, n_elems);                           \
        case SG_RULE_LARS: return apply_rule(SG_RULE_LARS, c, group, arrays, n_elems);                                 \
        case SG_RULE_LAMB: return apply_rule(SG_RULE_LAMB, c, group, arrays, n_elems);                                 \
        }                                                                                                              \
        return true;                                                                                                   \
    }                                                                                                                  \
    target static void sum_##name(sg_update_group *group, float *sums, size_t n_elems)                                 \
    { sum_runs(group, sums, n_elems); }                                                                                \
    target static bool is_finite_##name(sg_span_reader *gradient, size_t n_elems)                                      \
    { return is_finite(gradient, n_elems); }                                                                           \
    target static bool copy_is_finite_##name(const float *from, float *to, size_t n_elems)                             \
    { return copy_is_finite(from, to, n_elems); }                                                                      \
    target static double squares_##name(const float *x, size_t n_elems)                                                \
    { return squares(x, n_elems); }                                                                                    \
    static const sg_update_variant variant_##name = {apply_##name, sum_##name, is_finite_##name, copy_is_finite_##name, \
                                                     squares_##name};
/* clang-format on */
VARIANT(portable, )
VARIANT(avx2, SG_ISA_TARGET_AVX2)
VARIANT(avx512, SG_ISA_TARGET_AVX512)

const sg_update_variant *sg_update_pass_variant(sg_isa isa)
{
    static const sg_update_variant *const variants[SG_ISA_COUNT] = {
        [SG_ISA_PORTABLE] = &variant_portable, [SG_ISA_AVX2] = &variant_avx2, [SG_ISA_AVX512] = &variant_avx512};
    SG_ASSERT(sg_isa_has(isa));
    return variants[isa];
}
