#include "common/pool.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/allocations.h"

TestSuite(pool, .timeout = 20);

Test(pool, a_buffer_is_aligned_and_holds_what_was_asked_with_little_waste)
{
    sg_pool *pool = sg_pool_create();
    for (size_t n_bytes = 0; n_bytes < 3u << 20; n_bytes += 1 + n_bytes / 7) {
        sg_pool_buffer *buffer = sg_pool_get(pool, n_bytes);
        cr_assert_not_null(buffer);
        cr_assert_geq(buffer->n_bytes, n_bytes);
        cr_assert_leq(buffer->n_bytes, n_bytes + n_bytes / 8 + 64, "%zu for %zu", buffer->n_bytes, n_bytes);
        cr_assert_eq((uintptr_t)buffer->data % 64, 0);
        memset(buffer->data, 1, buffer->n_bytes);
        sg_pool_put(buffer);
    }
    sg_pool_destroy(pool);
}

Test(pool, a_power_of_two_wastes_nothing)
{
    sg_pool *pool = sg_pool_create();
    for (size_t n_bytes = 64; n_bytes <= 1u << 24; n_bytes *= 2) {
        sg_pool_buffer *buffer = sg_pool_get(pool, n_bytes);
        cr_assert_eq(buffer->n_bytes, n_bytes);
        sg_pool_put(buffer);
    }
    sg_pool_destroy(pool);
}

Test(pool, rounded_buffers_of_a_like_size_are_one_class_below_64_kib_and_waste_little_above)
{
    sg_pool *pool = sg_pool_create();
    for (size_t n_bytes = 0; n_bytes <= 256u << 10; n_bytes += 1 + n_bytes / 9) {
        sg_pool_buffer *buffer = sg_pool_get_rounded(pool, n_bytes), *other = NULL;
        cr_assert_geq(buffer->n_bytes, n_bytes);
        cr_assert_leq(buffer->n_bytes, 64 + (n_bytes <= 64u << 10 ? 2 * n_bytes : n_bytes + n_bytes / 8));
        size_t size = buffer->n_bytes;
        sg_pool_put(buffer);
        if (size <= 64u << 10)
            cr_assert_eq(other = sg_pool_get_rounded(pool, size / 2 + 1), buffer, "%zu after %zu", size / 2 + 1,
                         n_bytes);
        sg_pool_put(other);
    }
    sg_pool_destroy(pool);
}

Test(pool, a_buffer_that_was_put_is_used_again)
{
    sg_pool *pool = sg_pool_create();
    sg_pool_buffer *first = sg_pool_get(pool, 4096);
    sg_pool_buffer *second = sg_pool_get(pool, 4096);
    cr_assert_neq(first, second);
    sg_pool_put(first);
    cr_assert_eq(sg_pool_get(pool, 4000), first);
    sg_pool_put(first);
    sg_pool_put(second);
    sg_pool_destroy(pool);
}

Test(pool, a_size_beyond_memory_is_refused)
{
    sg_pool *pool = sg_pool_create();
    cr_assert_null(sg_pool_get(pool, SIZE_MAX - 100));
    sg_pool_destroy(pool);
}

Test(pool, a_buffer_may_come_back_after_the_pool_was_destroyed)
{
    sg_pool *pool = sg_pool_create();
    sg_pool_buffer *buffer = sg_pool_get(pool, 100);
    sg_pool_destroy(pool);
    memset(buffer->data, 1, 100);
    cr_assert_eq(((const char *)buffer->data)[99], 1);
    sg_pool_put(buffer); /* a leak or a use after free shows in the sanitizer's build */
}

#define N_THREADS 4
#define N_ROUNDS  20000

typedef struct exchange {
    sg_pool *pool;
    _Atomic(sg_pool_buffer *) mailbox[8];
    _Atomic unsigned n_clashes;
} exchange;

/* Gets a buffer, marks it as its own, hands it to whoever comes next, and puts what it finds in the mailbox. */
static void *trade(void *argument)
{
    exchange *x = argument;
    for (unsigned i = 0; i < N_ROUNDS; i++) {
        sg_pool_buffer *buffer = sg_pool_get(x->pool, 64u << (i % 3));
        _Atomic unsigned *owners = (_Atomic unsigned *)(void *)buffer->extra;
        if (atomic_fetch_add(owners, 1) != 0)
            atomic_fetch_add(&x->n_clashes, 1);
        memset(buffer->data, (int)i, 64);
        atomic_fetch_sub(owners, 1);
        sg_pool_put(atomic_exchange(&x->mailbox[i % 8], buffer));
    }
    return NULL;
}

Test(pool, no_buffer_has_two_holders_whatever_threads_get_and_put)
{
    exchange x = {.pool = sg_pool_create()};
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, trade, &x);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SG_ARRAY_LEN(x.mailbox); i++)
        sg_pool_put(x.mailbox[i]);
    cr_assert_eq(x.n_clashes, 0);
    sg_pool_destroy(x.pool);
}

Test(pool, an_object_is_zeroed_though_its_memory_was_used_before)
{
    sg_pool *pool = sg_pool_create();
    unsigned char *first = sg_pool_alloc(pool, 100);
    memset(first, 0xff, 100);
    sg_pool_free(first);
    unsigned char *again = sg_pool_alloc(pool, 100);
    cr_assert_eq(again, first, "the freed object is used again");
    cr_assert_eq((uintptr_t)again % 16, 0);
    for (size_t i = 0; i < 100; i++)
        cr_assert_eq(again[i], 0, "byte %zu", i);
    sg_pool_free(again);
    sg_pool_free(NULL);
    sg_pool_destroy(pool);
}

Test(pool, an_object_beyond_memory_is_refused_where_its_size_is_a_strangers)
{
    sg_pool *pool = sg_pool_create();
    cr_assert_null(sg_pool_try_alloc(pool, SIZE_MAX));
    cr_assert_null(sg_pool_try_alloc(pool, SIZE_MAX / 2));
    cr_assert_null(sg_pool_try_alloc(NULL, SIZE_MAX / 2));
    static const size_t sizes[] = {0, 1, SG_POOL_KEPT_BYTES, SG_POOL_KEPT_BYTES + 1};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        unsigned char *object = sg_pool_try_alloc(pool, sizes[i]);
        cr_assert_not_null(object);
        for (size_t k = 0; k < sizes[i]; k++)
            cr_assert_eq(object[k], 0);
        sg_pool_free(object);
    }
    sg_pool_destroy(pool);
}

Test(pool, an_object_may_outlive_its_pool)
{
    sg_pool *pool = sg_pool_create();
    int *object = sg_pool_alloc(pool, sizeof *object);
    sg_pool_destroy(pool);
    *object = 1;
    sg_pool_free(object);
}

Test(pool, an_object_that_is_not_zeroed_is_as_good_and_its_memory_is_zeroed_for_the_next)
{
    sg_pool *pool = sg_pool_create();
    static const size_t sizes[] = {1, 100, SG_POOL_KEPT_BYTES, SG_POOL_KEPT_BYTES + 1};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        unsigned char *raw = sg_pool_try_alloc_raw(pool, sizes[i]);
        cr_assert_not_null(raw);
        cr_assert_eq((uintptr_t)raw % 16, 0);
        memset(raw, 0xff, sizes[i]);
        sg_pool_free(raw);
        unsigned char *zeroed = sg_pool_try_alloc(pool, sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            cr_assert_eq(zeroed[k], 0);
        sg_pool_free(zeroed);
    }
    cr_assert_null(sg_pool_try_alloc_raw(pool, SIZE_MAX / 2));
    sg_pool_destroy(pool);
}

Test(pool, a_large_object_is_zeroed_and_given_back_and_so_is_one_of_no_pool)
{
    sg_pool *pool = sg_pool_create();
    sg_pool *pools[] = {pool, pool, NULL};
    size_t sizes[] = {SG_POOL_KEPT_BYTES + 1, (size_t)64 << 20, 100};
    char report[1000];
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        for (int round = 0; round < 2; round++) {
            sg_allocations_begin();
            unsigned char *object = sg_pool_alloc(pools[i], sizes[i]);
            size_t n = sg_allocations_end(report, sizeof report);
            cr_assert_eq(n, 1, "%zu allocations for %zu bytes: the pool must not have kept it", n, sizes[i]);
            cr_assert_eq((uintptr_t)object % 16, 0);
            cr_assert_eq(object[0] | object[sizes[i] - 1], 0);
            memset(object, 0xff, sizes[i]);
            sg_pool_free(object);
        }
    }
    sg_pool_destroy(pool);
}
