/* tests/support/scarcity.h - a system that has no more threads or event loops to give.
 *
 * The linker puts the functions of scarcity.c in the place of pthread_create, uv_thread_create, uv_loop_init,
 * uv_async_init and uv_sem_init for the objects of a test program (--wrap, see the Makefile). What libraries make for
 * themselves is not refused. */
#ifndef SG_TESTS_SUPPORT_SCARCITY_H
#define SG_TESTS_SUPPORT_SCARCITY_H

/* From here on `n` of them are given, together, and no more; below 0: as many as the system has. */
void sg_scarcity_allow(int n);

#endif
