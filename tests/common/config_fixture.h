/* tests/common/config_fixture.h - cluster files for tests. */
#ifndef SG_TESTS_CONFIG_FIXTURE_H
#define SG_TESTS_CONFIG_FIXTURE_H

#include "common/config.h"

/* A cluster file that names every key, each with another value than its default. */
extern const char config_everything[];

/* Asserts that it loads. */
sg_config *config_parsed(const char *text);

#endif
