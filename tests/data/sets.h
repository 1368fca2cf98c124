/* tests/data/sets.h - data sets read from files made for a test, by a cluster file of a line. What is wrong with them
 * fails the test. */
#ifndef SG_TESTS_DATA_SETS_H
#define SG_TESTS_DATA_SETS_H

#include "tests/data/files.h"
#include "worker/data/dataset.h"

/* The whole cluster file is this text. Freed by sg_config_destroy. */
sg_config *sg_sets_config_of(const char *text);
/* `more` is what stands in `data` beside the two files. */
sg_config *sg_sets_config_with(const char *format, const char *train, const char *test, const char *more);
const char *sg_sets_write_text(sg_files *files, const char *text, bool gzip);

sg_dataset *sg_sets_load(const sg_config *config);
sg_dataset *sg_sets_load_test(const sg_config *config, const sg_dataset *train);
/* At most 8 features, each within 1e-6. */
void sg_sets_assert_example(const sg_dataset *dataset, size_t index, uint32_t label, const float *features);

/* The set that the bytes make is refused with DATA, in one line that names the file and holds `part`. */
void sg_sets_refuse(const char *format, const void *bytes, size_t n_bytes, const char *more, const char *part);
void sg_sets_refuse_text(const char *format, const char *text, const char *more, const char *part);

#endif
