/* common/memory.h - the allocator's settings, which belong to a whole process. */
#ifndef SG_COMMON_MEMORY_H
#define SG_COMMON_MEMORY_H

/* Makes glibc keep freed memory instead of giving it back: gRPC allocates a receive buffer for every message, and
 * fresh pages cost more than the copy into them. Called by the daemons' main before anything else; never by the
 * library, whose host's allocator is not ours to change. */
void sg_memory_tune_daemon(void);

#endif
