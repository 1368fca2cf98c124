/* server/accept.h - new connections where few files may be open (ulimit -n).
 *
 * A gRPC server that fails to accept a connection for want of a descriptor never accepts again. So whatever is linked
 * with this accepts through its own accept4, which stands before libc's: it closes connections that would take the last
 * descriptors, and leaves one that cannot be accepted waiting. */
#ifndef SG_SERVER_ACCEPT_H
#define SG_SERVER_ACCEPT_H

#include <stdint.h>

/* Descriptors that are kept for files and for connections of the process's own. */
#define SG_ACCEPT_RESERVE 24u

/* Connections that were closed, of the whole process, since it began. */
uint64_t sg_accept_closed(void);

#endif
