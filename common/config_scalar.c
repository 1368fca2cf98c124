/* common/config_scalar.c - see config_scalar.h. */
#include "common/config_scalar.h"

#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/utf8.h"

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* --- numbers -------------------------------------------------------------------------------------------------- */

/* Digits up to *end, without a leading zero. */
static bool read_digits(const char *text, const char **end, uint64_t *value)
{
    uint64_t read = 0;
    for (*end = text; isdigit((unsigned char)**end); (*end)++) {
        if (__builtin_mul_overflow(read, 10u, &read) || __builtin_add_overflow(read, (uint64_t)(**end - '0'), &read))
            return false;
    }
    *value = read;
    return *end > text && (text[0] != '0' || *end == text + 1);
}

bool sg_config_scalar_read_whole(const char *text, uint64_t *value)
{
    const char *end;
    return read_digits(text, &end, value) && *end == '\0';
}

bool sg_config_scalar_read_bytes(const char *text, uint64_t *value)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    const char *end;
    if (!read_digits(text, &end, value))
        return false;
    for (size_t i = 0; i < SG_ARRAY_LEN(units); i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        if (*value > UINT64_MAX >> units[i].shift)
            return false;
        *value <<= units[i].shift;
        return true;
    }
    return false;
}

/* -? digits ( . digits )? ( e digits )?, at least one digit before the exponent, no leading zero. */
static bool looks_real(const char *text)
{
    text += *text == '-';
    size_t whole = strspn(text, DIGITS);
    if (whole > 1 && text[0] == '0')
        return false;
    text += whole;
    size_t fraction = 0;
    if (*text == '.') {
        fraction = strspn(text + 1, DIGITS);
        text += 1 + fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        size_t exponent = strspn(text, DIGITS);
        if (exponent == 0)
            return false;
        text += exponent;
    }
    return *text == '\0';
}

bool sg_config_scalar_read_real(const char *text, double *value)
{
    if (!looks_real(text))
        return false;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    SG_ASSERT(c != (locale_t)0);
    *value = strtod_l(text, NULL, c);
    freelocale(c);
    return true;
}

const char *sg_config_scalar_hint(const char *text, bool quoted, char hint[SG_CONFIG_HINT_BYTES])
{
    size_t n_digits = strspn(text, DIGITS), n_zeros = strspn(text, "0");
    char prefix = text[0] == '0' ? text[1] : '\0';
    int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    hint[0] = '\0';
    if (quoted && n_digits > 0)
        snprintf(hint, SG_CONFIG_HINT_BYTES, "in quotes it is text: write it without");
    else if (base != 0 && strspn(text + 2, DIGITS "abcdefABCDEF") == strlen(text + 2))
        snprintf(hint, SG_CONFIG_HINT_BYTES, "write it in decimal: %llu", strtoull(text + 2, NULL, base));
    else if (n_zeros > 0 && n_digits > 1)
        snprintf(hint, SG_CONFIG_HINT_BYTES, "a leading zero means octal to some: write %.40s",
                 text + (isdigit((unsigned char)text[n_zeros]) ? n_zeros : n_zeros - 1));
    else if (n_digits > 0 && strchr(text, '_') != NULL && strspn(text, DIGITS "_.") == strlen(text))
        snprintf(hint, SG_CONFIG_HINT_BYTES, "write it without '_'");
    return hint;
}

void sg_config_scalar_print_real(double value, FILE *out)
{
    char text[40];
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    SG_ASSERT(c != (locale_t)0);
    locale_t before = uselocale(c);
    /* The fewest digits that read back as the same number. */
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    uselocale(before);
    freelocale(c);
    fputs(text, out);
}

void sg_config_scalar_print_bytes(uint64_t value, FILE *out)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    while (value != 0 && value % 1024 == 0 && unit + 1 < SG_ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    fprintf(out, "%" PRIu64 "%s", value, units[unit]);
}

/* --- text ----------------------------------------------------------------------------------------------------- */

bool sg_config_scalar_is_word(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(text, words[i]) == 0)
            return true;
    }
    return false;
}

bool sg_config_scalar_is_other(const char *text)
{
    static const char *const words[] = {"", "~", "null", "true", "false", ".inf", "-.inf", "+.inf", ".nan"};
    if (sg_config_scalar_is_word(text, words, SG_ARRAY_LEN(words)))
        return true;
    text += *text == '-' || *text == '+';
    return looks_real(text) || (isdigit((unsigned char)text[0]) && strspn(text, DIGITS "_.xob") == strlen(text));
}

bool sg_config_scalar_is_line(const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        uint32_t c;
        size_t length = sg_utf8_decode(text, left, &c);
        if (length == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff)
            return false;
        text += length;
        left -= length;
    }
    return true;
}

bool sg_config_scalar_is_name(const char *text)
{
    return strspn(text, LETTERS DIGITS "._-") == strlen(text) && text[0] != '.' && text[0] != '-';
}

/* Plain where nobody can misread it, else in double quotes. */
void sg_config_scalar_print_text(const char *text, FILE *out)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    if (strspn(text, LETTERS "/") > 0 && strspn(text, LETTERS DIGITS "/._-") == strlen(text) &&
        !sg_config_scalar_is_word(text, words, SG_ARRAY_LEN(words))) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}
