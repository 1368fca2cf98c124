/* common/config_syntax.h - what is wrong in a text that is not YAML, in words that say what was wanted. Private to
 * config_*.c. */
#ifndef SG_COMMON_CONFIG_SYNTAX_H
#define SG_COMMON_CONFIG_SYNTAX_H

#include <stddef.h>
#include <stdint.h>

#define SG_CONFIG_SYNTAX_BYTES 200

/* Puts into words what libfyaml said of this place, line and column from 1, of the text. What is not known is passed on
 * as it is. A bracket or a quote that was not closed is told with the place where it was opened. Returns out. */
const char *sg_config_syntax_explain(const char *text, size_t n_bytes, const char *said, uint32_t line, uint32_t column,
                                     char out[SG_CONFIG_SYNTAX_BYTES]);

#endif
