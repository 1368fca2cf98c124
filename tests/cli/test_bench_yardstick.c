#include "worker/cli/bench/yardstick.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(bench_yardstick, .timeout = 20);

static const sg_bench_combination combination = {
    .message_bytes = 1048576, .threads = 1, .connections = 2, .in_flight = 4};
static atomic_bool stopped;

/* A program in the yardstick's place: a shell script. Starts it. */
static sg_status start(const char *script, sg_bench_yardstick **yardstick, sg_error *err)
{
    char path[] = "/tmp/sg-yardstick-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && dprintf(fd, "#!/bin/sh\n%s\n", script) > 0 && fchmod(fd, 0700) == 0);
    close(fd);
    atomic_store(&stopped, false);
    sg_status status = sg_bench_yardstick_create(path, 8192, &stopped, yardstick, err);
    unlink(path);
    return status;
}

static void end(sg_bench_yardstick *yardstick)
{
    sg_bench_yardstick_destroy(yardstick);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a child is left");
}

Test(bench_yardstick, it_is_asked_a_line_and_answers_a_line)
{
    sg_bench_yardstick *yardstick;
    sg_error err = {0};
    cr_assert_eq(start("test \"$1 $2\" = '--bytes 8192' || exit 1\n"
                       "echo 'chatter of a library' >&2\n"
                       "echo ready\n"
                       "read -r line; test \"$line\" = 'push 1048576 1 2 4 2' || exit 1\n"
                       "echo '{\"op\":\"push\",\"seconds\":[0.5,0.25],\"client_cpu_seconds\":[1,2],"
                       "\"server_cpu_seconds\":[3,4],\"client_faults\":[5,6],\"server_faults\":[7,8]}'\n"
                       "read -r line; test \"$line\" = 'echo 4096 300' || exit 1\n"
                       "echo '{\"op\":\"echo\",\"bytes\":4096,\"calls\":300,\"p50_seconds\":0.001,"
                       "\"p99_seconds\":0.002}'\n"
                       "read -r line",
                       &yardstick, &err),
                 SG_OK, "%s", err.message);
    sg_bench_passes passes = {0};
    double p50, p99;
    cr_assert_eq(sg_bench_yardstick_measure(yardstick, "push", &combination, 2, &passes, &err), SG_OK, "%s",
                 err.message);
    cr_assert(passes.seconds.n == 2 && passes.seconds.values[1] == 0.25);
    cr_assert(passes.client_cpu_seconds.values[0] == 1 && passes.server_cpu_seconds.values[1] == 4);
    cr_assert(passes.client_faults.values[1] == 6 && passes.server_faults.values[0] == 7);
    cr_assert_eq(sg_bench_yardstick_echo(yardstick, 4096, 300, &p50, &p99, &err), SG_OK, "%s", err.message);
    cr_assert(p50 == 0.001 && p99 == 0.002);
    sg_bench_passes_deinit(&passes);
    end(yardstick);
}

Test(bench_yardstick, its_last_word_is_told_when_it_ends)
{
    sg_bench_yardstick *yardstick;
    sg_error err = {0};
    cr_assert_eq(start("echo 'shardgrad-yardstick: no memory for 12 bytes' >&2; exit 69", &yardstick, &err),
                 SG_UNAVAILABLE);
    cr_assert_str_eq(err.message, "the yardstick has ended: no memory for 12 bytes");
    cr_assert_eq(
        start("echo ready; read -r line; echo 'shardgrad-yardstick: a wrong value' >&2; exit 70", &yardstick, &err),
        SG_OK);
    sg_bench_passes passes = {0};
    cr_assert_eq(sg_bench_yardstick_measure(yardstick, "pull", &combination, 1, &passes, &err), SG_UNAVAILABLE);
    cr_assert_str_eq(err.message, "the yardstick has ended: a wrong value");
    sg_bench_passes_deinit(&passes);
    end(yardstick);
}

Test(bench_yardstick, an_answer_that_is_none_is_an_error)
{
    static const char *const answers[] = {"{not json", "{}", "{\"seconds\":[1,2]}",
                                          "{\"seconds\":[\"a\"],\"client_cpu_seconds\":[1]}"};
    for (size_t i = 0; i < SG_ARRAY_LEN(answers); i++) {
        sg_bench_yardstick *yardstick;
        char script[512];
        snprintf(script, sizeof(script), "echo ready; read -r line; echo '%s'; read -r line", answers[i]);
        cr_assert_eq(start(script, &yardstick, NULL), SG_OK);
        sg_bench_passes passes = {0};
        sg_error err;
        cr_assert_eq(sg_bench_yardstick_measure(yardstick, "push", &combination, 1, &passes, &err), SG_UNAVAILABLE,
                     "%s", answers[i]);
        sg_bench_passes_deinit(&passes);
        end(yardstick);
    }
}

Test(bench_yardstick, whoever_waits_for_it_can_be_stopped)
{
    sg_bench_yardstick *yardstick;
    cr_assert_eq(start("echo ready; exec sleep 1000", &yardstick, NULL), SG_OK);
    sg_bench_passes passes = {0};
    atomic_store(&stopped, true);
    cr_assert_eq(sg_bench_yardstick_measure(yardstick, "push", &combination, 1, &passes, NULL), SG_CANCELLED);
    sg_bench_passes_deinit(&passes);
    end(yardstick);
}

Test(bench_yardstick, a_program_that_is_not_there_is_not_found)
{
    sg_bench_yardstick *yardstick;
    sg_error err;
    cr_assert_eq(sg_bench_yardstick_create("/nowhere/yardstick", 4, &stopped, &yardstick, &err), SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "/nowhere/yardstick"));
}

Test(bench_yardstick, one_that_answered_wrongly_and_does_not_end_is_ended)
{
    sg_bench_yardstick *yardstick;
    cr_assert_eq(start("echo ready; read -r line; echo '{not json'; exec sleep 1000", &yardstick, NULL), SG_OK);
    sg_bench_passes passes = {0};
    cr_assert_eq(sg_bench_yardstick_measure(yardstick, "push", &combination, 1, &passes, NULL), SG_UNAVAILABLE);
    sg_bench_passes_deinit(&passes);
    end(yardstick);
}

Test(bench_yardstick, one_that_does_not_end_with_its_input_is_ended_after_a_while)
{
    sg_bench_yardstick *yardstick;
    cr_assert_eq(start("echo ready; exec sleep 1000", &yardstick, NULL), SG_OK);
    end(yardstick);
}
