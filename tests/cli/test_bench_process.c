#include "worker/cli/bench/process.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(bench_process, .timeout = 20);

#define PAGES      2000u
#define PAGE_BYTES 4096u
#define SLACK      (1u << 20) /* the kernel counts pages in batches */

static unsigned char *touch(void)
{
    unsigned char *memory = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED);
    madvise(memory, PAGES * PAGE_BYTES, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < PAGES; i++)
        memory[i * PAGE_BYTES] = 1;
    return memory;
}

Test(bench_process, fresh_pages_are_faults_and_work_is_cpu_time)
{
    sg_bench_usage before = {0}, after = {0};
    cr_assert_eq(sg_bench_process_add_usage(getpid(), &before, NULL), SG_OK);
    unsigned char *memory = touch();
    struct timespec cpu;
    clock_t began = clock();
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    while (clock() - began < CLOCKS_PER_SEC / 50);
    cr_assert_eq(sg_bench_process_add_usage(getpid(), &after, NULL), SG_OK);
    cr_assert(after.faults - before.faults >= PAGES, "%zu faults", (size_t)(after.faults - before.faults));
    cr_assert(after.cpu_seconds - before.cpu_seconds >= 0.015, "finer than the ticks of /proc/PID/stat");
    munmap(memory, PAGES * PAGE_BYTES);
}

Test(bench_process, usage_adds_up)
{
    sg_bench_usage once = {0}, twice = {0};
    cr_assert_eq(sg_bench_process_add_usage(getpid(), &once, NULL), SG_OK);
    cr_assert_eq(sg_bench_process_add_usage(getpid(), &twice, NULL), SG_OK);
    cr_assert_eq(sg_bench_process_add_usage(getpid(), &twice, NULL), SG_OK);
    cr_assert(twice.faults >= 2 * once.faults && twice.cpu_seconds >= 2 * once.cpu_seconds);
}

Test(bench_process, memory_is_what_is_resident_and_the_peak_is_kept_until_it_is_reset)
{
    uint64_t resident, peak, before, after;
    cr_assert_eq(sg_bench_process_memory(getpid(), &before, &peak, NULL), SG_OK);
    unsigned char *memory = touch();
    cr_assert_eq(sg_bench_process_memory(getpid(), &resident, &peak, NULL), SG_OK);
    cr_assert(resident >= before + PAGES * PAGE_BYTES / 2 && peak + SLACK >= resident);
    munmap(memory, PAGES * PAGE_BYTES);
    cr_assert_eq(sg_bench_process_memory(getpid(), &resident, &after, NULL), SG_OK);
    cr_assert(after + SLACK >= peak && after > resident + SLACK, "%zu %zu %zu", (size_t)after, (size_t)peak,
              (size_t)resident);
    if (!sg_bench_process_reset_peak(getpid()))
        cr_skip("the kernel does not let us reset the peak");
    cr_assert_eq(sg_bench_process_memory(getpid(), &resident, &after, NULL), SG_OK);
    cr_assert(after + SLACK < peak);
}

Test(bench_process, a_process_that_has_ended_is_an_error)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    sg_error err;
    sg_bench_usage usage = {0};
    uint64_t resident, peak;
    cr_assert_eq(sg_bench_process_add_usage(pid, &usage, &err), SG_PEER_LOST);
    cr_assert_not_null(strstr(err.message, "has ended"));
    cr_assert_eq(sg_bench_process_memory(pid, &resident, &peak, NULL), SG_PEER_LOST);
    cr_assert_not(sg_bench_process_reset_peak(pid));
}

Test(bench_process, available_memory_is_a_sane_number)
{
    uint64_t bytes = sg_bench_process_available_bytes();
    cr_assert(bytes > 1 << 20);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

Test(bench_process, the_least_that_a_control_group_and_those_above_it_leave_counts)
{
    char root[] = "/tmp/sg-group-XXXXXX", outer[64], inner[80], command[128];
    cr_assert_not_null(mkdtemp(root));
    snprintf(outer, sizeof(outer), "%s/a", root);
    snprintf(inner, sizeof(inner), "%s/b", outer);
    cr_assert(mkdir(outer, 0700) == 0 && mkdir(inner, 0700) == 0);
    cr_assert_eq(sg_bench_process_group_bytes(root, "/a/b"), UINT64_MAX);
    write_file(inner, "memory.max", "max\n");
    write_file(inner, "memory.current", "700\n");
    cr_assert_eq(sg_bench_process_group_bytes(root, "/a/b"), UINT64_MAX);
    write_file(outer, "memory.max", "1000\n");
    write_file(outer, "memory.current", "800\n");
    cr_assert_eq(sg_bench_process_group_bytes(root, "/a/b"), 200);
    write_file(outer, "memory.stat", "anon 700\ninactive_file 50\n");
    cr_assert_eq(sg_bench_process_group_bytes(root, "/a/b"), 250, "what is cached of files can be had");
    write_file(inner, "memory.max", "710\n");
    cr_assert_eq(sg_bench_process_group_bytes(root, "/a/b"), 10);
    write_file(root, "memory.max", "5\n");
    write_file(root, "memory.current", "6\n");
    cr_assert_eq(sg_bench_process_group_bytes(root, "/"), 0, "more is used than may be");
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}
