/* tests/support/scarcity.c - see scarcity.h. */
#include "tests/support/scarcity.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

/* One for the process, as its threads are. */
static atomic_int n_left = -1;

void sg_scarcity_allow(int n)
{
    atomic_store(&n_left, n);
}

static bool is_refused(void)
{
    int n = atomic_load(&n_left);
    while (n > 0 && !atomic_compare_exchange_weak(&n_left, &n, n - 1))
        continue;
    return n == 0;
}

/* WRAP(name, refusal, parameters, arguments) */
#define WRAP(name, refusal, parameters, arguments)                                                                     \
    int __real_##name parameters;                                                                                      \
    int __wrap_##name parameters;                                                                                      \
    int __wrap_##name parameters                                                                                       \
    {                                                                                                                  \
        return is_refused() ? (refusal) : __real_##name arguments;                                                     \
    }
WRAP(pthread_create, EAGAIN, (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *user),
     (thread, how, run, user))
WRAP(uv_thread_create, UV_EAGAIN, (uv_thread_t * thread, uv_thread_cb run, void *user), (thread, run, user))
WRAP(uv_loop_init, UV_EMFILE, (uv_loop_t * loop), (loop))
WRAP(uv_async_init, UV_ENFILE, (uv_loop_t * loop, uv_async_t *async, uv_async_cb run), (loop, async, run))
WRAP(uv_sem_init, UV_ENOMEM, (uv_sem_t * sem, unsigned int value), (sem, value))
