/* tests/support/tsan_arena.c - lets Criterion run under ThreadSanitizer; nothing in any other build.
 *
 * Criterion shares an arena with its test processes. It looks for a free address by trying ten at random (mincore) and
 * maps it there in parent and child alike. ThreadSanitizer reserves almost the whole address space, so the search
 * fails, and memory outside of its ranges has no shadow. So here every address below those counts as free, and the
 * arena is then put at a place below the libraries, which ThreadSanitizer tracks and the kernel does not hand out by
 * itself. These functions are the program's own in place of libc's. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

#ifdef UNDER_TSAN
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Visible, so that Criterion calls these. */
#define UNTRACED    __attribute__((no_sanitize("thread"), visibility("default")))
#define TRACKED     UINT64_C(0x7e8000000000) /* ThreadSanitizer's range for libraries and stacks begins here on x86-64 */
#define PLACES_MASK UINT64_C(0x3fffffffff)   /* 256 GiB from there on; libraries mostly lie further up */
#define NEXT_PLACE  UINT64_C(0x1c0000000)    /* 7 GiB: where to look next if one is taken */
#define MAX_PLACES  32

/* ThreadSanitizer's own mmap, which is what a program calls otherwise. */
void *__interceptor_mmap(void *address, size_t n_bytes, int protection, int flags, int fd, off_t offset);

UNTRACED int mincore(void *address, size_t n_bytes, unsigned char *present)
{
    if ((uintptr_t)address >= TRACKED)
        return (int)syscall(SYS_mincore, address, n_bytes, present);
    errno = ENOMEM;
    return -1;
}

UNTRACED void *mmap(void *address, size_t n_bytes, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_SHARED) != 0 && (flags & MAP_FIXED) != 0 && (uintptr_t)address < TRACKED) {
        void *mapped = MAP_FAILED;
        for (uintptr_t i = 0; i < MAX_PLACES && mapped == MAP_FAILED; i++) {
            void *place = (void *)(TRACKED + (((uintptr_t)address + i * NEXT_PLACE) & PLACES_MASK));
            mapped = (void *)syscall(SYS_mmap, place, n_bytes, protection, (flags & ~MAP_FIXED) | MAP_FIXED_NOREPLACE,
                                     fd, offset);
        }
        return mapped; /* Criterion does not look whether it has failed */
    }
    return __interceptor_mmap(address, n_bytes, protection, flags, fd, offset);
}

UNTRACED void *mmap64(void *address, size_t n_bytes, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, n_bytes, protection, flags, fd, offset);
}
#endif
