/* common/memory_limit.h - the address space of a whole process: for the mains. */
#ifndef SG_COMMON_MEMORY_LIMIT_H
#define SG_COMMON_MEMORY_LIMIT_H

#include <stdint.h>

/* Ends the process with exit code 69 and one line where a limit (ulimit -v, ulimit -d) gives it less address space than
 * a program of ours takes before it holds a model, and `more_bytes` for a library. What comes later is told when it
 * fails; but gRPC may wait for ever for a thread that it could not start, and OpenBLAS for a buffer, at fork and exit,
 * too: so this is for the start of main, and no destructor runs. */
void sg_memory_limit_require(const char *program, uint64_t more_bytes);

#endif
