/* common/crc32c.c - see crc32c.h. */
#include "common/crc32c.h"

#include <isa-l/crc.h>

#define PIECE_BYTES ((size_t)1 << 30) /* libisal counts in int */

uint32_t sg_crc32c(uint32_t crc, const void *data, size_t n_bytes)
{
    crc = ~crc;
    for (size_t done = 0; done < n_bytes;) {
        size_t piece = n_bytes - done < PIECE_BYTES ? n_bytes - done : PIECE_BYTES;
        crc = crc32_iscsi((unsigned char *)data + done, (int)piece, crc); /* which only reads */
        done += piece;
    }
    return ~crc;
}
