/* kernels/dropout.h - which elements dropout leaves out: the only place where it stands, for the host and for devices.
 */
#ifndef SG_KERNELS_DROPOUT_H
#define SG_KERNELS_DROPOUT_H

#include <stdint.h>

#include <Random123/philox.h>

#include "kernels/isa.h"

#define SG_DROPOUT_WORDS 4u /* elements of a block */

/* The random words of elements [4 * block, 4 * block + 4). */
SG_ISA_INLINE philox4x32_ctr_t sg_dropout_block(uint64_t seed, uint64_t stream, uint64_t block)
{
    const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const philox4x32_ctr_t counter = {
        {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    return philox4x32(counter, key);
}

/* A word below it drops the element. */
SG_ISA_INLINE uint64_t sg_dropout_limit(double rate)
{
    return (uint64_t)(rate * 4294967296.0);
}

#endif
