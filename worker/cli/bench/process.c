/* worker/cli/bench/process.c - see process.h. */
#include "worker/cli/bench/process.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES 4096u

static sg_status gone(int pid, sg_error *err)
{
    return sg_error_set(err, SG_PEER_LOST, "process %d, which was measured, has ended", pid);
}

/* The beginning of a file of /proc, terminated; false if it is not there. */
static bool read_file(const char *path, char text[FILE_BYTES])
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t n = fread(text, 1, FILE_BYTES - 1, file);
    text[n] = '\0';
    fclose(file);
    return n > 0;
}

static bool read_file_of(int pid, const char *name, char text[FILE_BYTES])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    return read_file(path, text);
}

/* Finds "NAME: 123 kB" in text, which NAME begins a line of. */
static bool find_kib(const char *text, const char *name, uint64_t *bytes)
{
    uint64_t kib;
    const char *at = strstr(text, name);
    if (at == NULL || sscanf(at + strlen(name), ": %" SCNu64 " kB", &kib) != 1)
        return false;
    *bytes = kib * 1024;
    return true;
}

/* /proc/PID/stat counts CPU in ticks of 10 ms: too coarse for one repetition. The process's clock is not. */
sg_status sg_bench_process_add_usage(int pid, sg_bench_usage *usage, sg_error *err)
{
    char text[FILE_BYTES];
    clockid_t clock;
    struct timespec cpu;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &cpu) != 0 || !read_file_of(pid, "stat", text))
        return gone(pid, err);
    /* The name of the program, in parentheses, may hold anything; minflt is the eighth field after it. */
    uint64_t faults;
    const char *after = strrchr(text, ')');
    if (after == NULL || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %" SCNu64, &faults) != 1)
        return gone(pid, err);
    usage->cpu_seconds += (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9;
    usage->faults += faults;
    return SG_OK;
}

sg_status sg_bench_process_memory(int pid, uint64_t *resident_bytes, uint64_t *peak_bytes, sg_error *err)
{
    char text[FILE_BYTES];
    if (!read_file_of(pid, "status", text) || !find_kib(text, "VmRSS", resident_bytes) ||
        !find_kib(text, "VmHWM", peak_bytes))
        return gone(pid, err);
    return SG_OK;
}

bool sg_bench_process_reset_peak(int pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/clear_refs", pid);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    bool written = fputs("5", file) >= 0;
    return fclose(file) == 0 && written;
}

/* A number in a file of a control group, perhaps after its name; false if there is none ("max"). */
static bool read_limit(const char *folder, const char *name, const char *before, uint64_t *bytes)
{
    char path[FILE_BYTES], text[FILE_BYTES];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof(path) || !read_file(path, text))
        return false;
    const char *at = strstr(text, before);
    return at != NULL && sscanf(at + strlen(before), "%" SCNu64, bytes) == 1;
}

uint64_t sg_bench_process_group_bytes(const char *root, const char *group)
{
    char folder[FILE_BYTES];
    int n = snprintf(folder, sizeof(folder), "%s%s", root, group);
    uint64_t least = UINT64_MAX;
    while (n > 0 && (size_t)n < sizeof(folder)) {
        uint64_t max, used, files = 0;
        (void)read_limit(folder, "memory.stat", "\ninactive_file ", &files);
        if (read_limit(folder, "memory.max", "", &max) && read_limit(folder, "memory.current", "", &used)) {
            used -= files < used ? files : used;
            uint64_t left = max > used ? max - used : 0;
            least = left < least ? left : least;
        }
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash < folder + strlen(root))
            break;
        *slash = '\0';
    }
    return least;
}

/* Of this process, in version 2 of control groups; UINT64_MAX where there is none. */
static uint64_t own_group_bytes(void)
{
    char text[FILE_BYTES];
    char *at = read_file("/proc/self/cgroup", text) ? strstr(text, "0::/") : NULL;
    if (at == NULL)
        return UINT64_MAX;
    at[strcspn(at, "\n")] = '\0';
    return sg_bench_process_group_bytes("/sys/fs/cgroup", at + strlen("0::"));
}

uint64_t sg_bench_process_available_bytes(void)
{
    char text[FILE_BYTES];
    uint64_t machine, group = own_group_bytes();
    if (!read_file("/proc/meminfo", text) || !find_kib(text, "MemAvailable", &machine))
        return group;
    return machine < group ? machine : group;
}
