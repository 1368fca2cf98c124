/* common/config_scalar.h - how numbers and text are written in a cluster file and on the command line. Pure functions.
 *
 * Strict on purpose: what YAML loaders read in different ways (07071, 0x10, 1_000, yes, .inf) is refused. Numbers are
 * read and written in the C locale, whatever locale the program that embeds the library has set. */
#ifndef SG_COMMON_CONFIG_SCALAR_H
#define SG_COMMON_CONFIG_SCALAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A whole decimal number without sign or leading zero; false for anything else and for one that does not fit. */
bool sg_config_scalar_read_whole(const char *text, uint64_t *value);
/* The same, with KiB, MiB or GiB behind it or nothing. */
bool sg_config_scalar_read_bytes(const char *text, uint64_t *value);
/* A decimal number with or without sign, fraction and exponent; too large a one is infinite. */
bool sg_config_scalar_read_real(const char *text, double *value);

#define SG_CONFIG_HINT_BYTES 120
/* How a number that was written in a doubtful way would be written; "" if there is nothing to say. Returns hint. */
const char *sg_config_scalar_hint(const char *text, bool quoted, char hint[SG_CONFIG_HINT_BYTES]);

/* Would a YAML loader take this plain scalar for something else than text? */
bool sg_config_scalar_is_other(const char *text);
/* One line of UTF-8 without control characters, so that it can be printed, logged and read back. */
bool sg_config_scalar_is_line(const char *text);
/* Letters, digits, '.', '_' and '-', not beginning with '.' or '-': fit to be a file's name. */
bool sg_config_scalar_is_name(const char *text);
/* Is text one of n words, in whatever case? */
bool sg_config_scalar_is_word(const char *text, const char *const *words, size_t n);

/* Each writes the one canonical form, which reads back as the same value. */
void sg_config_scalar_print_real(double value, FILE *out);
void sg_config_scalar_print_bytes(uint64_t value, FILE *out);
void sg_config_scalar_print_text(const char *text, FILE *out);

#endif
