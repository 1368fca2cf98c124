/* tests/gpu/bare/criterion/criterion.h - the part of Criterion that the tests of kernels and tape use, for a machine
 * without it: tests/gpu/check.c runs them, one after the other in one process. */
#ifndef SG_TESTS_GPU_CRITERION_H
#define SG_TESTS_GPU_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct sg_bare_test {
    const char *suite, *name;
    void (*run)(void);
    struct sg_bare_test *next;
} sg_bare_test;

void sg_bare_add(sg_bare_test *test);
/* Ends the test that runs; the text is to be printed before. */
_Noreturn void sg_bare_fail(void);

#define TestSuite(...)
#define Test(suite_, name_, ...)                                                                                       \
    static void suite_##_##name_(void);                                                                                \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)                                              \
    {                                                                                                                  \
        static sg_bare_test test = {.suite = #suite_, .name = #name_, .run = suite_##_##name_};                        \
        sg_bare_add(&test);                                                                                            \
    }                                                                                                                  \
    static void suite_##_##name_(void)

#define cr_log_warn(...) ((void)0)
#define cr_assert(condition, ...)                                                                                      \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: not so: %s.", __FILE__, __LINE__, #condition);                                              \
            printf(" " __VA_ARGS__);                                                                                   \
            printf("\n");                                                                                              \
            sg_bare_fail();                                                                                            \
        }                                                                                                              \
    } while (0)
#define cr_assert_not(condition, ...)    cr_assert(!(condition), ##__VA_ARGS__)
#define cr_assert_null(pointer, ...)     cr_assert((pointer) == NULL, ##__VA_ARGS__)
#define cr_assert_not_null(pointer, ...) cr_assert((pointer) != NULL, ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...)          cr_assert((a) == (b), ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...)          cr_assert((a) < (b), ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)      cr_assert(strcmp(a, b) == 0, ##__VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...)   cr_assert(memcmp(a, b, n) == 0, ##__VA_ARGS__)
#define cr_assert_arr_neq(a, b, n, ...)  cr_assert(memcmp(a, b, n) != 0, ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, within, ...)                                                                          \
    cr_assert(fabs((double)(a) - (double)(b)) <= (double)(within), ##__VA_ARGS__)

#endif
