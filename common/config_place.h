/* common/config_place.h - who gave each value of a configuration, for messages. Private to config_*.c.
 *
 * A place is small and refers to names of its owner; the book of a configuration has its own copies. */
#ifndef SG_COMMON_CONFIG_PLACE_H
#define SG_COMMON_CONFIG_PLACE_H

#include "common/config_file.h"
#include "common/config_options.h"

/* Who gave a value: the command line (source), a place in the file (line), or nobody, so that it is the default. */
typedef struct sg_config_place {
    const char *name;   /* of the file; "defaults" without one */
    const char *source; /* "--set update.mode"; NULL: the file */
    uint32_t line, column;
} sg_config_place;

/* Fills err with "file:line:column: key: ..." or "--set key: ..."; returns CONFIG. */
SG_MUST_USE sg_status sg_config_fault(const sg_config_place *place, const char *key, sg_error *err, const char *format,
                                      ...) SG_PRINTF(4, 5);
/* Whether the file or the command line gave it. */
bool sg_config_place_is_given(const sg_config_place *place);

struct sg_config_places;
struct sg_config_places *sg_config_places_create(const char *name);
void sg_config_places_destroy(struct sg_config_places *places); /* NULL is fine */
/* Who gave the value of the option; what is in it is owned by `places`. */
const sg_config_place *sg_config_places_of(const struct sg_config_places *places, const sg_config_option *option);
/* node: the value that was given there; the places of its items are kept, too. NULL: the default. */
void sg_config_places_note(struct sg_config_places *places, const sg_config_option *option,
                           const sg_config_place *place, const sg_config_node *node);

#endif
