/* common/folder.h - the few things done to files of a run directory. */
#ifndef SG_COMMON_FOLDER_H
#define SG_COMMON_FOLDER_H

#include <stdio.h>

#include "common/status.h"

/* Makes the folder `path` and those above it. Errors: NOT_FOUND, naming the path and the reason. */
SG_MUST_USE sg_status sg_folder_make(const char *path, sg_error *err);

/* Replaces `path` by a file with this content, whole or not at all (a file beside it, then a rename); makes its
 * folder. Errors: NOT_FOUND. */
SG_MUST_USE sg_status sg_folder_write(const char *path, const void *data, size_t n_bytes, sg_error *err);

/* Opens run_dir/log/WHO.log for appending, making the folders; closed by fclose. Errors: NOT_FOUND. */
SG_MUST_USE sg_status sg_folder_open_log(const char *run_dir, const char *who, FILE **file, sg_error *err);

#endif
