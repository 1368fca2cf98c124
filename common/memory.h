/* common/memory.h - the allocator's settings, which belong to a whole process. */
#ifndef SG_COMMON_MEMORY_H
#define SG_COMMON_MEMORY_H

/* Makes glibc keep freed memory instead of giving it back: gRPC allocates a receive buffer for every message, and
 * fresh pages cost more than the copy into them. Called by the daemons' main before anything else; never by the
 * library, whose host's allocator is not ours to change: who embeds it calls sg_tune_allocator. Fewer arenas, a
 * greater top pad, and huge pages for the ps's buffers were measured to change nothing beyond that. */
void sg_memory_tune_daemon(void);

#endif
