/* tests/support/allocations.c - see allocations.h. */
#include "tests/support/allocations.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <protobuf-c/protobuf-c.h>

#include "common/status.h"

enum { N_FRAMES = 6, N_PLACES = 256, N_REPORTED = 8 };

/* A chain of callers, and how often it came. */
typedef struct place {
    void *frames[N_FRAMES];
    int n_frames;
    size_t count;
} place;

/* One for the process, as the allocator is. */
static struct {
    atomic_bool counting;
    pthread_mutex_t mutex; /* guards the rest */
    size_t total;          /* also of what found no room in places */
    place places[N_PLACES];
    size_t n_places;
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static place *place_of(void *const *frames, int n_frames)
{
    for (size_t i = 0; i < seen.n_places; i++) {
        place *known = &seen.places[i];
        if (known->n_frames == n_frames && memcmp(known->frames, frames, (size_t)n_frames * sizeof(void *)) == 0)
            return known;
    }
    if (seen.n_places == N_PLACES)
        return NULL;
    place *made = &seen.places[seen.n_places++];
    memcpy(made->frames, frames, (size_t)n_frames * sizeof(void *));
    made->n_frames = n_frames;
    made->count = 0;
    return made;
}

static __attribute__((noinline)) void count(void)
{
    if (!atomic_load_explicit(&seen.counting, memory_order_relaxed))
        return;
    void *frames[N_FRAMES + 2]; /* without this function and the one that stands for malloc */
    int n_frames = backtrace(frames, N_FRAMES + 2) - 2;
    pthread_mutex_lock(&seen.mutex);
    seen.total++;
    place *at = n_frames > 0 ? place_of(frames + 2, n_frames) : NULL;
    if (at != NULL)
        at->count++;
    pthread_mutex_unlock(&seen.mutex);
}

void sg_allocations_begin(void)
{
    void *frames[1];
    backtrace(frames, 1); /* loads what it needs */
    pthread_mutex_lock(&seen.mutex);
    seen.total = seen.n_places = 0;
    pthread_mutex_unlock(&seen.mutex);
    atomic_store(&seen.counting, true);
}

/* --- the report --- */

static int most_first(const void *a, const void *b)
{
    const place *one = a, *other = b;
    return one->count < other->count ? 1 : one->count > other->count ? -1 : 0;
}

/* Appends to text, which always ends in a zero byte. */
static SG_PRINTF(3, 4) void append(char *text, size_t n_bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, n_bytes - used, format, args);
    va_end(args);
}

/* "sg_xcalloc (status.c:175)"; an address within its file where nobody can say more. */
static void frame_append(char *text, size_t n_bytes, const void *address)
{
    Dl_info object;
    char command[512], function[128] = "", line[256] = "";
    if (dladdr(address, &object) == 0) {
        append(text, n_bytes, "%p", address);
        return;
    }
    char program[256] = "";
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0 || strchr(object.dli_fname, '/') != NULL)
        snprintf(program, sizeof(program), "%s", object.dli_fname);
    /* The call lies before the address to which it returns. */
    size_t offset = (size_t)((const char *)address - (const char *)object.dli_fbase) - 1;
    snprintf(command, sizeof(command), "addr2line -s -f -e '%s' 0x%zx 2>/dev/null", program, offset);
    FILE *said = popen(command, "r");
    bool known = said != NULL && fgets(function, sizeof(function), said) && fgets(line, sizeof(line), said);
    if (said != NULL)
        pclose(said);
    function[strcspn(function, "\n")] = line[strcspn(line, " \n")] = '\0';
    if (known && line[0] != '?')
        append(text, n_bytes, "%s (%s)", function, line);
    else
        append(text, n_bytes, "%s+0x%zx", program, offset);
}

size_t sg_allocations_end(char *report, size_t report_bytes)
{
    atomic_store(&seen.counting, false);
    pthread_mutex_lock(&seen.mutex);
    qsort(seen.places, seen.n_places, sizeof(place), most_first);
    if (report_bytes > 0)
        report[0] = '\0';
    for (size_t i = 0; report != NULL && i < seen.n_places && i < N_REPORTED; i++) {
        append(report, report_bytes, "%zu x ", seen.places[i].count);
        for (int j = 0; j < seen.places[i].n_frames; j++) {
            append(report, report_bytes, j > 0 ? " < " : "");
            frame_append(report, report_bytes, seen.places[i].frames[j]);
        }
        append(report, report_bytes, "\n");
    }
    size_t total = seen.total;
    pthread_mutex_unlock(&seen.mutex);
    return total;
}

/* --- what stands for malloc and its kin --- */

/* NAME(type, name, parameters, arguments) */
#define ALLOCATORS(X)                                                                                                  \
    X(void *, malloc, (size_t n_bytes), (n_bytes))                                                                     \
    X(void *, calloc, (size_t n, size_t element_bytes), (n, element_bytes))                                            \
    X(void *, realloc, (void *old, size_t n_bytes), (old, n_bytes))                                                    \
    X(void *, reallocarray, (void *old, size_t n, size_t element_bytes), (old, n, element_bytes))                      \
    X(void *, aligned_alloc, (size_t alignment, size_t n_bytes), (alignment, n_bytes))                                 \
    X(int, posix_memalign, (void **made, size_t alignment, size_t n_bytes), (made, alignment, n_bytes))                \
    X(char *, strdup, (const char *text), (text))                                                                      \
    X(char *, strndup, (const char *text, size_t n_bytes), (text, n_bytes))                                            \
    X(int, vasprintf, (char **text, const char *format, va_list args), (text, format, args))

#define WRAP(type, name, parameters, arguments)                                                                        \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        count();                                                                                                       \
        return __real_##name arguments;                                                                                \
    }
ALLOCATORS(WRAP)

static void *unpack_alloc(void *user, size_t n_bytes)
{
    (void)user;
    count();
    return __real_malloc(n_bytes);
}

static void unpack_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* The library's own allocator is malloc, called where no wrapper is. */
ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *type,
                                                   ProtobufCAllocator *allocator, size_t n_bytes, const uint8_t *bytes);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *type,
                                                   ProtobufCAllocator *allocator, size_t n_bytes, const uint8_t *bytes);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *type,
                                                   ProtobufCAllocator *allocator, size_t n_bytes, const uint8_t *bytes)
{
    ProtobufCAllocator counted = {.alloc = unpack_alloc, .free = unpack_free};
    return __real_protobuf_c_message_unpack(type, allocator != NULL ? allocator : &counted, n_bytes, bytes);
}
