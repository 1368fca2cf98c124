/* kernels/bf16.h - bfloat16: the upper half of a float. Gradients travel as it where update.wire says so.
 *
 * Narrowing rounds to nearest, ties to even; what lies beyond the largest bfloat16 becomes infinity, as IEEE 754 has it
 * (3.39e38 and more); a NaN stays one, and quiet. Widening is exact. */
#ifndef SG_KERNELS_BF16_H
#define SG_KERNELS_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t sg_bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const uint32_t quiet = bits | 0x00400000u;
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

static inline float sg_bf16_to_float(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Little endian, at any byte; no overlap. */
static inline void sg_bf16_narrow_to_bytes(const float *from, uint8_t *to, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        const uint16_t narrow = sg_bf16_of(from[i]);
        memcpy(to + i * sizeof narrow, &narrow, sizeof narrow);
    }
}

static inline void sg_bf16_widen_bytes(const uint8_t *from, float *to, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        uint16_t narrow;
        memcpy(&narrow, from + i * sizeof narrow, sizeof narrow);
        to[i] = sg_bf16_to_float(narrow);
    }
}

#endif
