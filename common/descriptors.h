/* common/descriptors.h - open files of a whole process: for the mains, never for the library, whose host's they are. */
#ifndef SG_COMMON_DESCRIPTORS_H
#define SG_COMMON_DESCRIPTORS_H

#include "common/status.h"

/* Puts something in the place of what is closed of standard input, output and error: otherwise the next file or
 * connection would get its number, and whatever is written to standard error would go there. To read or write there
 * fails as it did before. Called before anything else. */
void sg_descriptors_open_standard(void);

/* Allows as many open files as the system lets this process have. Each connection is one, and a gRPC server that fails
 * to accept for want of one never accepts again; the usual limit, 1024, is less than a large cluster needs. */
void sg_descriptors_raise_limit(void);

/* The exit code of a program that would end with `code`: writes out what is left of standard output, and where that or
 * anything before could not be written, such as on a full disk, says so and makes 74 of 0. A reader that has gone has
 * read what it wanted. */
int sg_descriptors_end_output(const char *program, int code);

/* Whether so many files may be open; `what_for` ends the message: "2 workers and 1 ps". Errors: EXHAUSTED. */
SG_MUST_USE sg_status sg_descriptors_check(uint64_t wanted, const char *what_for, sg_error *err);

#endif
