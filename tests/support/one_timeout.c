/* tests/support/one_timeout.c - gives all tests of a program the longest time-out among them.
 *
 * Criterion 2.4 keeps its time-outs in one list and, where tests with different ones run side by side, loses records
 * of it (48 bytes each). LeakSanitizer reports that as a leak of ours. A hanging test still ends. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>

ReportHook(PRE_ALL)(struct criterion_test_set *all)
{
    double longest = 0;
    FOREACH_SET(struct criterion_suite_set * set, all->suites)
    {
        if (set->suite.data != NULL && set->suite.data->timeout > longest)
            longest = set->suite.data->timeout;
        FOREACH_SET(struct criterion_test * test, set->tests)
        {
            if (test->data->timeout > longest)
                longest = test->data->timeout;
        }
    }
    FOREACH_SET(struct criterion_suite_set * set, all->suites)
    {
        FOREACH_SET(struct criterion_test * test, set->tests)
        {
            test->data->timeout = longest;
        }
    }
}
