/* common/memory.h - the allocator's settings, which belong to a whole process. */
#ifndef SG_COMMON_MEMORY_H
#define SG_COMMON_MEMORY_H

/* Makes glibc keep freed memory instead of giving it back: gRPC allocates a receive buffer for every message, and
 * fresh pages cost more than the copy into them. Called by a program's main before anything else; never by the library
 * by itself, whose host's allocator is not ours to change: who embeds it calls sg_tune_allocator. A greater top pad,
 * and huge pages for the ps's buffers were measured to change nothing beyond that. */
void sg_memory_tune(void);

/* For the daemons, whose threads allocate little: in one arena, too. That was measured to change nothing in time, but a
 * ps with 2 workers then takes 2.3 to 2.4 times the bytes of its parameters instead of 2.5 to 2.8. */
void sg_memory_tune_daemon(void);

#endif
