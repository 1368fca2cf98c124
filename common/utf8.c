/* common/utf8.c - see utf8.h. */
#include "common/utf8.h"

size_t sg_utf8_decode(const char *text, size_t n_bytes, uint32_t *character)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: below it the form is overlong */
    if (n_bytes == 0)
        return 0;
    uint8_t lead = (uint8_t)text[0];
    size_t length = lead < 0x80 ? 1 : (lead >> 5) == 0x6 ? 2 : (lead >> 4) == 0xe ? 3 : (lead >> 3) == 0x1e ? 4 : 0;
    if (length == 0 || length > n_bytes)
        return 0;
    uint32_t value = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((uint8_t)text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((uint8_t)text[i] & 0x3f);
    }
    if (value < lowest[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *character = value;
    return length;
}
