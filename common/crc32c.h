/* common/crc32c.h - CRC-32C (Castagnoli), as RFC 3720 defines it; by libisal. */
#ifndef SG_COMMON_CRC32C_H
#define SG_COMMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of `data` after what has the checksum `crc`; 0 to begin with. */
uint32_t sg_crc32c(uint32_t crc, const void *data, size_t n_bytes);

#endif
