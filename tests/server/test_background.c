#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/resource.h>

#include "server/background.h"
#include "tests/support/scarcity.h"

TestSuite(background, .timeout = 30);

typedef struct seen {
    int niceness;
    pthread_t thread;
} seen;

static void look(void *user)
{
    seen *s = user;
    s->niceness = getpriority(PRIO_PROCESS, 0);
    s->thread = pthread_self();
}

Test(background, work_gives_way_on_a_thread_of_its_own_and_the_caller_is_as_it_was)
{
    seen s = {0};
    int before = getpriority(PRIO_PROCESS, 0);
    sg_background_run(look, &s);
    cr_assert_eq(s.niceness, before + 10 > 19 ? 19 : before + 10);
    cr_assert_not(pthread_equal(s.thread, pthread_self()));
    cr_assert_eq(getpriority(PRIO_PROCESS, 0), before);
}

Test(background, without_a_thread_the_caller_does_it)
{
    seen s = {0};
    sg_scarcity_allow(0);
    sg_background_run(look, &s);
    sg_scarcity_allow(-1);
    cr_assert(pthread_equal(s.thread, pthread_self()));
}
