#include "common/parent.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(parent, .timeout = 20);

Test(parent, none_is_fine_and_what_is_no_process_id_is_usage)
{
    sg_error err;
    cr_assert_eq(sg_parent_bind(NULL, &err), SG_OK);
    const char *const wrong[] = {"", "x", "12x", "0", "-1", "99999999999999999999"};
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++)
        cr_assert_eq(sg_parent_bind(wrong[i], &err), SG_USAGE, "'%s'", wrong[i]);
}

Test(parent, a_process_that_is_not_the_parent_counts_as_gone)
{
    sg_error err;
    char pid[32];
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    cr_assert_eq(sg_parent_bind(pid, &err), SG_STOPPED);
    cr_assert(strstr(err.message, pid) != NULL);
}

/* A child starts a grandchild, which holds `held` open and binds itself to the child, which is then killed. */
Test(parent, a_bound_process_ends_when_its_parent_is_killed)
{
    int ready[2], held[2];
    cr_assert(pipe(ready) == 0 && pipe(held) == 0);
    pid_t child = fork();
    if (child == 0) {
        char pid[32];
        snprintf(pid, sizeof(pid), "%ld", (long)getpid());
        if (fork() == 0)
            (void)!write(ready[1], sg_parent_bind(pid, NULL) == SG_OK ? "y" : "n", 1);
        for (;;)
            pause();
    }
    close(held[1]);
    char answer;
    cr_assert_eq(read(ready[0], &answer, 1), 1);
    cr_assert_eq(answer, 'y');
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert_eq(read(held[0], &answer, 1), 0, "the end of the pipe comes when the grandchild has ended, too");
    close(held[0]);
    close(ready[0]);
    close(ready[1]);
}
