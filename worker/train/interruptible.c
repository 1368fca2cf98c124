/* worker/train/interruptible.c - see interruptible.h. */
#include "worker/train/interruptible.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <uv.h>

#include "common/signals.h"

static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

typedef struct run {
    const sg_interruptible *what;
    uv_signal_t signals[SG_ARRAY_LEN(numbers)];
    uv_async_t over; /* the work has ended */
    uv_timer_t patience;
    int signal_number;
    sg_status status;
    sg_error error;
} run;

static void do_work(void *user)
{
    run *r = user;
    r->status = r->what->work(r->what->user, &r->error);
    uv_async_send(&r->over);
}

static void on_patience_over(uv_timer_t *timer)
{
    run *r = timer->data;
    r->what->stop(r->what->user);
}

static void on_signal(uv_signal_t *handle, int signal_number)
{
    run *r = handle->data;
    if (r->signal_number != 0)
        _exit(128 + signal_number);
    r->signal_number = signal_number;
    uv_timer_start(&r->patience, on_patience_over, r->what->patience_ms, 0);
}

static void on_over(uv_async_t *async)
{
    run *r = async->data;
    for (size_t i = 0; i < SG_ARRAY_LEN(r->signals); i++)
        uv_close((uv_handle_t *)&r->signals[i], NULL);
    uv_close((uv_handle_t *)&r->patience, NULL);
    uv_close((uv_handle_t *)async, NULL);
}

static void mask_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++)
        sigaddset(&set, numbers[i]);
    pthread_sigmask(how, &set, NULL);
}

void sg_interruptible_hold_signals(void)
{
    mask_signals(SIG_BLOCK);
}

static sg_status loop_open(uv_loop_t *loop, uv_async_t *over, sg_error *err)
{
    int failed = uv_loop_init(loop);
    if (failed == 0 && (failed = uv_async_init(loop, over, on_over)) != 0)
        (void)uv_loop_close(loop);
    return failed == 0 ? SG_OK : sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
}

sg_status sg_interruptible_run(const sg_interruptible *interruptible, int *signal_number, sg_error *err)
{
    run r = {.what = interruptible};
    uv_loop_t loop;
    uv_thread_t thread;
    const sg_status opened = loop_open(&loop, &r.over, err);
    if (opened != SG_OK)
        return opened;
    uv_timer_init(&loop, &r.patience);
    r.over.data = r.patience.data = &r;
    for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++) {
        uv_signal_init(&loop, &r.signals[i]);
        r.signals[i].data = &r;
        if (numbers[i] != SIGHUP || sg_signals_hangup_ends())
            uv_signal_start(&r.signals[i], on_signal, numbers[i]);
    }
    mask_signals(SIG_UNBLOCK);
    const int failed = uv_thread_create(&thread, do_work, &r);
    if (failed != 0) {
        r.status = sg_error_set(&r.error, SG_EXHAUSTED, "no thread for the work: %s", uv_strerror(failed));
        on_over(&r.over);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++)
        signal(numbers[i], SIG_IGN);
    if (failed == 0)
        uv_thread_join(&thread);
    SG_ASSERT(uv_loop_close(&loop) == 0);
    *signal_number = r.signal_number;
    if (r.status != SG_OK && err != NULL)
        *err = r.error;
    return r.status;
}

int sg_interruptible_exit_code(sg_status status, int signal_number)
{
    if (signal_number != 0 && (status == SG_OK || status == SG_CANCELLED))
        return signal_number == SIGINT ? 130 : 0;
    return sg_status_exit_code(status);
}
