#include "server/version.h"

#include <criterion/criterion.h>

TestSuite(version, .timeout = 20);

Test(version, the_last_release_gives_the_buffer_back)
{
    sg_pool *pool = sg_pool_create();
    sg_version *version = sg_version_create(pool, 7, 3, 100);
    cr_assert_eq(version->slice, 7);
    cr_assert_eq(version->step, 3);
    cr_assert_eq(version->n_elems, 100);
    cr_assert_eq((uintptr_t)version->values % 64, 0);
    sg_pool_buffer *buffer = version->buffer;
    cr_assert_eq(sg_version_retain(version), version);
    sg_version_release(version);
    sg_pool_buffer *other = sg_pool_get(pool, 400);
    cr_assert_neq(other, buffer, "it is still held");
    sg_version_release(version);
    cr_assert_eq(sg_pool_get(pool, 400), buffer);
    sg_pool_put(buffer);
    sg_pool_put(other);
    sg_version_release(NULL);
    sg_pool_destroy(pool);
}

Test(version, a_shared_version_keeps_the_values_of_its_base_alive)
{
    sg_pool *pool = sg_pool_create();
    sg_version *base = sg_version_create(pool, 0, 0, 4);
    sg_pool_buffer *buffer = base->buffer;
    base->values[3] = 42;
    sg_version *one = sg_version_share(pool, base, 1);
    sg_version *two = sg_version_share(pool, one, 2);
    sg_version_release(base);
    sg_version_release(one);
    cr_assert_eq(two->step, 2);
    cr_assert_eq(two->n_elems, 4);
    cr_assert_eq(two->base, base, "a chain of shares stays one long");
    cr_assert_eq(two->values[3], 42);
    sg_pool_buffer *other = sg_pool_get(pool, 16);
    cr_assert_neq(other, buffer);
    sg_version_release(two);
    cr_assert_eq(sg_pool_get(pool, 16)->pool, pool);
    sg_pool_put(other);
    sg_pool_put(buffer);
    sg_pool_destroy(pool);
}

Test(version, it_is_sole_while_nobody_else_holds_it_or_its_values)
{
    sg_pool *pool = sg_pool_create();
    sg_version *version = sg_version_create(pool, 0, 1, 4);
    cr_assert(sg_version_is_sole(version));
    sg_version_retain(version);
    cr_assert_not(sg_version_is_sole(version));
    sg_version_release(version);
    sg_version *shared = sg_version_share(pool, version, 2);
    cr_assert_not(sg_version_is_sole(version));
    cr_assert_not(sg_version_is_sole(shared), "its values are another's");
    sg_version_release(shared);
    cr_assert(sg_version_is_sole(version));
    sg_version_release(version);
    sg_pool_destroy(pool);
}
