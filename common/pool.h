/* common/pool.h - buffers that are used again: fresh pages cost more than the copy into them.
 *
 * Buffers of similar size share a class (at most an eighth is wasted; powers of two are exact). Giving one back takes
 * no lock and allocates nothing, so that it may happen in a transport's destructor, on any thread. A pool never
 * shrinks while it lives: it holds the sum of the busiest moment of every class. So whoever sizes a buffer by what a
 * stranger sent bounds it first, and large objects are not kept at all. */
#ifndef SG_COMMON_POOL_H
#define SG_COMMON_POOL_H

#include <stdalign.h>

#include "common/status.h"

#define SG_POOL_EXTRA_BYTES 64
/* Larger objects (not buffers) are malloc's, which gets them back. */
#define SG_POOL_KEPT_BYTES ((size_t)256 << 10)

typedef struct sg_pool sg_pool;

typedef struct sg_pool_buffer {
    void *data;     /* 64-byte aligned, not zeroed */
    size_t n_bytes; /* what it can hold: at least what was asked for */
    /* For whoever holds the buffer: what belongs to its content and so needs no allocation of its own. */
    alignas(16) unsigned char extra[SG_POOL_EXTRA_BYTES];
    sg_pool *pool;
    struct sg_pool_buffer *next; /* the pool's */
} sg_pool_buffer;

sg_pool *sg_pool_create(void);
/* No more get, except by who still holds a buffer of it; its memory is freed when the last one has been put. NULL is
 * fine. */
void sg_pool_destroy(sg_pool *pool);

/* NULL without memory. Any thread. */
sg_pool_buffer *sg_pool_get(sg_pool *pool, size_t n_bytes);
/* The same with a class for each power of two only, below 64 KiB: where sizes differ from call to call, the pool soon
 * has one of every class that comes up. */
sg_pool_buffer *sg_pool_get_rounded(sg_pool *pool, size_t n_bytes);
/* Any thread, lock-free. NULL is fine. */
void sg_pool_put(sg_pool_buffer *buffer);

/* Small objects, so that a steady state allocates nothing: like sg_xcalloc (zeroed, never NULL, 16-byte aligned) and
 * free, and with the same threads as get and put. An object knows its pool. pool may be
 * NULL: then it is malloc's, for what is made once and yet freed by who frees others. */
void *sg_pool_alloc(sg_pool *pool, size_t n_bytes);
/* The same, but NULL without memory: for sizes that come from the wire. */
void *sg_pool_try_alloc(sg_pool *pool, size_t n_bytes);
/* The same, but not zeroed: for arrays that are filled in before they are read. */
void *sg_pool_try_alloc_raw(sg_pool *pool, size_t n_bytes);
void sg_pool_free(void *object); /* NULL is fine */

#endif
