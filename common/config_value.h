/* common/config_value.h - one value of the configuration: from a node into its field, from its field to text. Private
 * to config_*.c. */
#ifndef SG_COMMON_CONFIG_VALUE_H
#define SG_COMMON_CONFIG_VALUE_H

#include <stdio.h>

#include "common/config_place.h"

/* Checks the node against the option's type and bounds and writes the field, freeing what was there. On failure the
 * field is as it was. place says who wrote the node; its line and column are those of the node. */
SG_MUST_USE sg_status sg_config_value_set(sg_config *config, const sg_config_option *option, const sg_config_node *node,
                                          const sg_config_place *place, sg_error *err);
void sg_config_value_free(sg_config *config, const sg_config_option *option);

/* An empty list or text, which says that there is none. */
bool sg_config_value_is_none(const sg_config *config, const sg_config_option *option);

/* Writes the value as it would stand in a file: the one canonical form. */
void sg_config_value_print(const sg_config *config, const sg_config_option *option, FILE *out);
/* Writes what the option takes: "a whole number from 1 to 1024". */
void sg_config_value_print_wanted(const sg_config_option *option, FILE *out);

#endif
