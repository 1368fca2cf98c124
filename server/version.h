/* server/version.h - the immutable values of a slice at a step, counted, in buffers that are used again.
 *
 * Who holds a reference may read `values`; nobody writes them after sg_version_publish. Releasing the last
 * reference puts the buffer back into its pool: it takes no lock and allocates nothing, so it may be a transport's
 * destructor, on any thread. */
#ifndef SG_SERVER_VERSION_H
#define SG_SERVER_VERSION_H

#include <stdatomic.h>

#include "common/status.h"
#include "server/pool.h"

typedef struct sg_version {
    uint64_t step;  /* 0: the initial values */
    uint32_t slice; /* index in the plan */
    uint64_t n_elems;
    float *values; /* [n_elems], 64-byte aligned */
    _Atomic uint32_t references;
    sg_pool_buffer *buffer;
} sg_version;

sg_version *sg_version_retain(sg_version *version); /* returns it */
void sg_version_release(sg_version *version);       /* NULL is fine */

#endif
