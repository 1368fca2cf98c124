/* tests/support/allocations.h - proof that a steady state allocates nothing: counts what our own code allocates, by
 * caller.
 *
 * The linker puts the functions of allocations.c in the place of malloc and its kin for the objects of a test program
 * (--wrap, see the Makefile), so that the code under test and the test itself are counted, on every thread, and what
 * libraries do by themselves is not: gRPC's allocations are its own. protobuf-c allocates on our behalf, and is counted
 * where it would use its own allocator. */
#ifndef SG_TESTS_SUPPORT_ALLOCATIONS_H
#define SG_TESTS_SUPPORT_ALLOCATIONS_H

#include <stddef.h>

/* Counts from here on. Not while it counts already. */
void sg_allocations_begin(void);
/* Ends the counting; how many there were. `report` (may be NULL) gets who allocated most, one caller a line, as
 * "12 x sg_xcalloc (status.c:175) < push (parameter_service.c:80) < ..."; it names lines if addr2line is there. */
size_t sg_allocations_end(char *report, size_t report_bytes);

#endif
