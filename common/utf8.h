/* common/utf8.h - one question about text: which character begins here? */
#ifndef SG_COMMON_UTF8_H
#define SG_COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at text, which has n_bytes left. Returns its length in bytes (1 to 4) and sets *character; 0,
 * with nothing set, where no valid UTF-8 begins (cut short, overlong, a surrogate, above U+10FFFF, or n_bytes 0). */
size_t sg_utf8_decode(const char *text, size_t n_bytes, uint32_t *character);

#endif
