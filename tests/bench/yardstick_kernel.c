/* tests/bench/yardstick_kernel.c - the arithmetic of the yardstick, each loop compiled for three instruction sets. */
#include <math.h>
#include <string.h>

#include "kernels/isa.h"
#include "tests/bench/yardstick.h"

#define LEARNING_RATE 0.01F
#define BLOCK_ELEMS   ((size_t)1024)

/* Where gradients lie in a receive buffer is not for us to choose. */
typedef float loose_float __attribute__((aligned(1), may_alias));

/* Numbers in [-1, 1) that differ from element to element, so that a value in the wrong place is a wrong value. */
SG_ISA_INLINE float number(uint32_t i, uint32_t factor)
{
    uint32_t bits = i * factor;
    bits ^= bits >> 15;
    return (float)(int32_t)bits * 0x1p-31F;
}

SG_ISA_INLINE float value_of(size_t i)
{
    return number((uint32_t)i, 2654435761U);
}

SG_ISA_INLINE float gradient_of(size_t i)
{
    return number((uint32_t)i, 2246822519U);
}

SG_ISA_INLINE void sgd(const loose_float *gradients, const float *restrict old, float *restrict new, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++)
        new[i] = fmaf(-LEARNING_RATE, gradients[i], old[i]);
}

/* Elements begin .. begin + n_elems after n_steps; at most BLOCK_ELEMS. */
SG_ISA_INLINE void expect(float *restrict values, size_t begin, size_t n_elems, size_t n_steps)
{
    for (size_t i = 0; i < n_elems; i++)
        values[i] = value_of(begin + i);
    for (size_t step = 0; step < n_steps; step++)
        for (size_t i = 0; i < n_elems; i++)
            values[i] = fmaf(-LEARNING_RATE, gradient_of(begin + i), values[i]);
}

#define VERSION(name, target)                                                                                          \
    target static void sgd_##name(const loose_float *gradients, const float *old, float *new, size_t n_elems)          \
    {                                                                                                                  \
        sgd(gradients, old, new, n_elems);                                                                             \
    }                                                                                                                  \
    target static void expect_##name(float *values, size_t begin, size_t n_elems, size_t n_steps)                      \
    {                                                                                                                  \
        expect(values, begin, n_elems, n_steps);                                                                       \
    }
VERSION(portable, )
VERSION(avx2, SG_ISA_TARGET_AVX2)
VERSION(avx512, SG_ISA_TARGET_AVX512)

static const struct {
    void (*sgd)(const loose_float *gradients, const float *old, float *new, size_t n_elems);
    void (*expect)(float *values, size_t begin, size_t n_elems, size_t n_steps);
} versions[SG_ISA_COUNT] = {
    [SG_ISA_PORTABLE] = {sgd_portable, expect_portable},
    [SG_ISA_AVX2] = {sgd_avx2, expect_avx2},
    [SG_ISA_AVX512] = {sgd_avx512, expect_avx512},
};

void yardstick_kernel_fill_values(float *values, size_t begin, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++)
        values[i] = value_of(begin + i);
}

void yardstick_kernel_fill_gradients(float *gradients, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++)
        gradients[i] = gradient_of(i);
}

void yardstick_kernel_sgd(const void *gradients, const float *old_values, float *new_values, size_t n_elems)
{
    versions[sg_isa_best()].sgd(gradients, old_values, new_values, n_elems);
}

size_t yardstick_kernel_first_wrong(const float *values, size_t n_elems, size_t n_steps)
{
    sg_isa isa = sg_isa_best();
    for (size_t begin = 0; begin < n_elems; begin += BLOCK_ELEMS) {
        float expected[BLOCK_ELEMS];
        size_t n = n_elems - begin < BLOCK_ELEMS ? n_elems - begin : BLOCK_ELEMS;
        versions[isa].expect(expected, begin, n, n_steps);
        for (size_t i = 0; i < n; i++) {
            uint32_t wanted, found;
            memcpy(&wanted, &expected[i], sizeof(wanted));
            memcpy(&found, &values[begin + i], sizeof(found));
            if (wanted != found)
                return begin + i;
        }
    }
    return n_elems;
}
