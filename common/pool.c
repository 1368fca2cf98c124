/* common/pool.c - see pool.h. */
#include "common/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Classes count in units of 64 bytes: 1 to 8 units one by one, then eight classes to each doubling. */
#define UNIT_BYTES 64u
#define N_CLASSES  400u
#define MAX_UNITS  ((size_t)1 << 48)
/* Above this size rounding to powers of two would waste too much. */
#define ROUNDED_BYTES ((size_t)64 << 10)

struct sg_pool {
    pthread_mutex_t get_mutex; /* one popper at a time: that alone makes the stacks below safe from ABA */
    /* The pool's own hold and one for each buffer that is out; the last one frees. */
    _Atomic size_t holds;
    _Atomic(sg_pool_buffer *) stacks[N_CLASSES];
};

static size_t class_of(size_t n_bytes, size_t *class_bytes)
{
    size_t last = n_bytes == 0 ? 0 : (n_bytes - 1) / UNIT_BYTES; /* units - 1 */
    size_t shift = 0;
    while (last >> shift >= 16)
        shift++;
    size_t lead = last >> shift; /* 0..15; 8..15 where shift > 0 */
    *class_bytes = ((lead + 1) << shift) * UNIT_BYTES;
    return shift * 8 + lead;
}

sg_pool *sg_pool_create(void)
{
    sg_pool *pool = sg_xcalloc(1, sizeof *pool);
    pthread_mutex_init(&pool->get_mutex, NULL);
    atomic_init(&pool->holds, 1);
    return pool;
}

static void buffer_free(sg_pool_buffer *buffer)
{
    free(buffer->data);
    free(buffer);
}

static void drop_hold(sg_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->holds, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < N_CLASSES; i++) {
        for (sg_pool_buffer *buffer = atomic_load(&pool->stacks[i]), *next; buffer; buffer = next) {
            next = buffer->next;
            buffer_free(buffer);
        }
    }
    pthread_mutex_destroy(&pool->get_mutex);
    free(pool);
}

void sg_pool_destroy(sg_pool *pool)
{
    if (pool)
        drop_hold(pool);
}

static sg_pool_buffer *pop(sg_pool *pool, size_t class_index)
{
    pthread_mutex_lock(&pool->get_mutex);
    sg_pool_buffer *top = atomic_load_explicit(&pool->stacks[class_index], memory_order_acquire);
    while (top && !atomic_compare_exchange_weak_explicit(&pool->stacks[class_index], &top, top->next,
                                                         memory_order_acq_rel, memory_order_acquire))
        ;
    pthread_mutex_unlock(&pool->get_mutex);
    return top;
}

sg_pool_buffer *sg_pool_get(sg_pool *pool, size_t n_bytes)
{
    if (n_bytes > MAX_UNITS * UNIT_BYTES)
        return NULL;
    size_t class_bytes;
    sg_pool_buffer *buffer = pop(pool, class_of(n_bytes, &class_bytes));
    if (!buffer) {
        void *data = sg_try_alloc_aligned(class_bytes);
        if (!data)
            return NULL;
        buffer = sg_xcalloc(1, sizeof *buffer);
        *buffer = (sg_pool_buffer){.data = data, .n_bytes = class_bytes, .pool = pool};
    }
    atomic_fetch_add_explicit(&pool->holds, 1, memory_order_relaxed);
    return buffer;
}

void sg_pool_put(sg_pool_buffer *buffer)
{
    if (!buffer)
        return;
    sg_pool *pool = buffer->pool;
    size_t class_bytes;
    _Atomic(sg_pool_buffer *) *stack = &pool->stacks[class_of(buffer->n_bytes, &class_bytes)];
    sg_pool_buffer *top = atomic_load_explicit(stack, memory_order_relaxed);
    do
        buffer->next = top;
    while (!atomic_compare_exchange_weak_explicit(stack, &top, buffer, memory_order_acq_rel, memory_order_relaxed));
    drop_hold(pool);
}

/* Lies before the bytes of a small object. */
typedef struct object_head {
    alignas(16) sg_pool_buffer *buffer; /* NULL: it is no pool's */
} object_head;

sg_pool_buffer *sg_pool_get_rounded(sg_pool *pool, size_t n_bytes)
{
    size_t rounded = UNIT_BYTES;
    while (rounded < n_bytes && rounded < ROUNDED_BYTES)
        rounded *= 2;
    return sg_pool_get(pool, rounded < n_bytes ? n_bytes : rounded);
}

void *sg_pool_try_alloc_raw(sg_pool *pool, size_t n_bytes)
{
    if (n_bytes > MAX_UNITS * UNIT_BYTES - sizeof(object_head))
        return NULL;
    if (pool == NULL || n_bytes > SG_POOL_KEPT_BYTES) {
        object_head *object = calloc(1, sizeof(object_head) + n_bytes);
        return object == NULL ? NULL : object + 1;
    }
    sg_pool_buffer *buffer = sg_pool_get_rounded(pool, sizeof(object_head) + n_bytes);
    if (buffer == NULL)
        return NULL;
    object_head *head = buffer->data;
    head->buffer = buffer;
    return head + 1;
}

void *sg_pool_try_alloc(sg_pool *pool, size_t n_bytes)
{
    void *object = sg_pool_try_alloc_raw(pool, n_bytes);
    const bool is_zeroed = pool == NULL || n_bytes > SG_POOL_KEPT_BYTES; /* calloc's */
    return object == NULL || is_zeroed ? object : memset(object, 0, n_bytes);
}

void *sg_pool_alloc(sg_pool *pool, size_t n_bytes)
{
    void *object = sg_pool_try_alloc(pool, n_bytes);
    if (object == NULL)
        sg_out_of_memory(1, n_bytes);
    return object;
}

void sg_pool_free(void *object)
{
    if (!object)
        return;
    object_head *head = (object_head *)object - 1;
    if (head->buffer)
        sg_pool_put(head->buffer);
    else
        free(head);
}
