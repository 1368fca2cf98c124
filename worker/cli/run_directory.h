/* worker/cli/run_directory.h - the run directory as `shardgrad run` finds and leaves it. */
#ifndef SG_WORKER_CLI_RUN_DIRECTORY_H
#define SG_WORKER_CLI_RUN_DIRECTORY_H

#include "worker/train/summary.h"

/* Makes the folder if need be, locks it, and removes what an earlier run left there that would confuse this one:
 * address/, log/, summary.json. The lock belongs to *lock_fd and to every process that inherits it; it ends when all
 * of them have closed it, so a run waits for the last process of one that was killed, which has grace_ms to end.
 * Errors: CONFIG (another run uses it), UNAVAILABLE (what is left of one does), NOT_FOUND (it cannot be made). */
SG_MUST_USE sg_status sg_run_directory_open(const char *run_dir, uint64_t grace_ms, int *lock_fd, sg_error *err);

/* Whether this run has left its summary: worker 0 has done its last step. */
bool sg_run_directory_has_result(const char *run_dir);

/* What the run directory tells of a job that does not answer, in a line of words without an end: it has ended, or what
 * its ps 0 logged last. False: no job was ever started there by `shardgrad run`. */
bool sg_run_directory_describe(const char *run_dir, char *out, size_t out_bytes);

/* Prints the summary that a run left, for people, to standard output; then to standard error, if gradients were left
 * out, how many and what to do. Errors: NOT_FOUND, DATA; NON_FINITE: all was printed, but the training diverged. */
SG_MUST_USE sg_status sg_run_directory_print_result(const char *run_dir, sg_error *err);

/* The same of a summary that is not there, since it could not be written; says so. */
SG_MUST_USE sg_status sg_run_directory_print(const sg_summary *summary, const char *run_dir, sg_error *err);

#endif
