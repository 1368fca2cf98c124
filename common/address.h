/* common/address.h - where a ps of the cluster file is reached, also when the kernel chose its port.
 *
 * An entry host:port stands for itself. Behind one with port 0 the ps writes its real address to
 * run_dir/address/ps-INDEX once it is bound, and processes of the same machine read it there. */
#ifndef SG_COMMON_ADDRESS_H
#define SG_COMMON_ADDRESS_H

#include "common/config.h"

#define SG_ADDRESS_BYTES 300 /* a host name of 255, a colon, a port, brackets */

/* The address of ps `ps` for others: of `advertise` if there is one, else of `ps`; with port 0 from the run directory.
 * Errors: NOT_READY (the file is not there yet: ask again), CONFIG (no such ps, not host:port). */
SG_MUST_USE sg_status sg_address_find(const sg_config *config, uint32_t ps, char out[SG_ADDRESS_BYTES], sg_error *err);

/* Writes run_dir/address/ps-INDEX whole or not at all, making the folders. Errors: NOT_FOUND (cannot be written). */
SG_MUST_USE sg_status sg_address_publish(const sg_config *config, uint32_t ps, const char *address, sg_error *err);
/* Removes it, if it still says `address` (a later ps may have written its own). */
void sg_address_withdraw(const sg_config *config, uint32_t ps, const char *address);

#endif
