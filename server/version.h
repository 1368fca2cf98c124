/* server/version.h - the immutable values of a slice at a step, counted, in buffers that are used again.
 *
 * Who made a version fills `values` before anyone else sees it; from then on nobody writes them and everyone who
 * holds a reference may read. Releasing the last reference puts the buffer back into its pool: it takes no lock and
 * allocates nothing, so it may be a transport's destructor, on any thread. */
#ifndef SG_SERVER_VERSION_H
#define SG_SERVER_VERSION_H

#include <stdatomic.h>

#include "common/pool.h"
#include "common/status.h"

typedef struct sg_version {
    uint64_t step;  /* 0: the initial values */
    uint32_t slice; /* index in the plan */
    _Atomic uint32_t references;
    uint64_t n_elems;
    float *values; /* [n_elems], 64-byte aligned */
    sg_pool_buffer *buffer;
    struct sg_version *base; /* the version whose values these are; NULL: its own */
    struct sg_version *next; /* for whoever keeps a list of versions */
} sg_version;

/* With one reference, the caller's. NULL without memory. */
sg_version *sg_version_create(sg_pool *pool, uint32_t slice, uint64_t step, uint64_t n_elems);
/* A version of a later step with the same values, which are not copied. NULL without memory. */
sg_version *sg_version_share(sg_pool *pool, sg_version *of, uint64_t step);

/* Nobody else holds it, or its values: they may be written for another step. */
bool sg_version_is_sole(const sg_version *version);

sg_version *sg_version_retain(sg_version *version); /* returns it */
void sg_version_release(sg_version *version);       /* NULL is fine */

#endif
