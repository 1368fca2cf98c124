/* server/version.c - see version.h. */
#include "server/version.h"

#include <assert.h>

static_assert(sizeof(sg_version) <= SG_POOL_EXTRA_BYTES, "a version lives in its buffer's extra bytes");

static sg_version *version_in(sg_pool_buffer *buffer, uint32_t slice, uint64_t step, uint64_t n_elems)
{
    sg_version *version = (sg_version *)(void *)buffer->extra;
    version->step = step;
    version->slice = slice;
    version->n_elems = n_elems;
    version->buffer = buffer;
    version->values = buffer->data;
    version->base = version->next = NULL;
    atomic_init(&version->references, 1);
    return version;
}

sg_version *sg_version_create(sg_pool *pool, uint32_t slice, uint64_t step, uint64_t n_elems)
{
    sg_pool_buffer *buffer = sg_pool_get(pool, n_elems * sizeof(float));
    return buffer ? version_in(buffer, slice, step, n_elems) : NULL;
}

sg_version *sg_version_share(sg_pool *pool, sg_version *of, uint64_t step)
{
    sg_pool_buffer *buffer = sg_pool_get(pool, 0);
    if (!buffer)
        return NULL;
    sg_version *version = version_in(buffer, of->slice, step, of->n_elems);
    version->base = sg_version_retain(of->base ? of->base : of);
    version->values = version->base->values;
    return version;
}

bool sg_version_is_sole(const sg_version *version)
{
    return !version->base && atomic_load_explicit(&version->references, memory_order_acquire) == 1;
}

sg_version *sg_version_retain(sg_version *version)
{
    atomic_fetch_add_explicit(&version->references, 1, memory_order_relaxed);
    return version;
}

void sg_version_release(sg_version *version)
{
    while (version && atomic_fetch_sub_explicit(&version->references, 1, memory_order_acq_rel) == 1) {
        sg_version *base = version->base;
        sg_pool_put(version->buffer);
        version = base; /* which has no base of its own */
    }
}
