/* worker/cli/bench/process.h - what the kernel tells of a process and of the machine's memory. Linux only. */
#ifndef SG_WORKER_CLI_BENCH_PROCESS_H
#define SG_WORKER_CLI_BENCH_PROCESS_H

#include "common/status.h"

typedef struct sg_bench_usage {
    double cpu_seconds; /* of all its threads, in the program and in the kernel */
    uint64_t faults;    /* minor page faults */
} sg_bench_usage;

/* Adds what the process used since it began. Errors: PEER_LOST (there is none of this id any more). */
SG_MUST_USE sg_status sg_bench_process_add_usage(int pid, sg_bench_usage *usage, sg_error *err);

/* Bytes that are resident, and the most that were since the peak was reset. Errors: PEER_LOST. */
SG_MUST_USE sg_status sg_bench_process_memory(int pid, uint64_t *resident_bytes, uint64_t *peak_bytes, sg_error *err);
/* Makes the peak what is resident now. False: the kernel does not let us, and the peak is that of the whole life. */
bool sg_bench_process_reset_peak(int pid);

/* Bytes that this program can still get without swapping, of the machine's and of its control group's; UINT64_MAX where
 * the kernel does not tell. */
uint64_t sg_bench_process_available_bytes(void);
/* What is left of the limits of `group` ("/a/b") and those above it, which lie below the folder `root`; UINT64_MAX
 * where there is no limit. */
uint64_t sg_bench_process_group_bytes(const char *root, const char *group);

#endif
