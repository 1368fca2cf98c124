/* common/config_check.h - how the keys of a configuration go together. Private to config_*.c. */
#ifndef SG_COMMON_CONFIG_CHECK_H
#define SG_COMMON_CONFIG_CHECK_H

#include "common/config_value.h"

/* places[i] is who gave option i its value, so that a fault is reported where it was made. Errors: CONFIG. */
SG_MUST_USE sg_status sg_config_check(const sg_config *config, const sg_config_place *places, sg_error *err);

#endif
