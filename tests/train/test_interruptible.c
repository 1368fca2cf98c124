#include "worker/train/interruptible.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

TestSuite(interruptible, .timeout = 20);

typedef struct work_state {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stopped;
    int send;          /* signal that the work sends to its own process; 0: none */
    bool ignores_stop; /* and sends it once more */
} work_state;

static sg_status work(void *user, sg_error *err)
{
    work_state *w = user;
    if (w->send == 0)
        return sg_error_set(err, SG_DATA, "its own end");
    kill(getpid(), w->send);
    pthread_mutex_lock(&w->mutex);
    while (!w->stopped)
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    if (w->ignores_stop) {
        kill(getpid(), w->send);
        for (;;)
            pause();
    }
    return sg_error_set(err, SG_CANCELLED, "stopped");
}

static void stop(void *user)
{
    work_state *w = user;
    pthread_mutex_lock(&w->mutex);
    w->stopped = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static sg_status run(work_state *w, int *signal_number, sg_error *err)
{
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    sg_interruptible interruptible = {.work = work, .stop = stop, .user = w};
    return sg_interruptible_run(&interruptible, signal_number, err);
}

Test(interruptible, without_a_signal_it_returns_what_the_work_returns)
{
    work_state w = {.send = 0};
    int number = 99;
    sg_error err;
    cr_assert_eq(run(&w, &number, &err), SG_DATA);
    cr_assert_eq(number, 0);
    cr_assert_str_eq(err.message, "its own end");
    cr_assert_eq(sg_interruptible_exit_code(SG_DATA, number), 65);
}

Test(interruptible, a_signal_stops_the_work_and_decides_the_exit_code)
{
    static const struct {
        int number, code;
    } cases[] = {{SIGTERM, 0}, {SIGINT, 130}, {SIGHUP, 0}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        work_state w = {.send = cases[i].number};
        int number;
        sg_error err;
        signal(cases[i].number, SIG_DFL); /* not as nohup, which may have started the tests, or the last case left it */
        cr_assert_eq(run(&w, &number, &err), SG_CANCELLED);
        cr_assert_eq(number, cases[i].number);
        cr_assert_eq(sg_interruptible_exit_code(SG_CANCELLED, number), cases[i].code);
    }
    cr_assert_eq(sg_interruptible_exit_code(SG_DATA, SIGTERM), 65, "what failed before the signal stays a failure");
}

static sg_status hang_up(void *user, sg_error *err)
{
    (void)user;
    kill(getpid(), SIGHUP);
    return sg_error_set(err, SG_DATA, "its own end");
}

Test(interruptible, with_nohup_a_hangup_stops_nothing)
{
    signal(SIGHUP, SIG_IGN);
    int number = 99;
    work_state w = {.send = 0};
    cr_assert_eq(sg_interruptible_run(&(sg_interruptible){.work = hang_up, .stop = stop, .user = &w}, &number, NULL),
                 SG_DATA);
    cr_assert_eq(number, 0);
    cr_assert_not(w.stopped);
}

Test(interruptible, a_signal_that_is_held_stops_the_work_when_it_begins)
{
    sg_interruptible_hold_signals();
    raise(SIGTERM);
    work_state w = {.send = SIGWINCH}; /* which does nothing */
    int number;
    cr_assert_eq(run(&w, &number, NULL), SG_CANCELLED);
    cr_assert_eq(number, SIGTERM);
}

/* It ends by itself, some time after a signal; a stop would come before that. */
static sg_status work_that_hears(void *user, sg_error *err)
{
    work_state *w = user;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&w->mutex);
    kill(getpid(), SIGTERM);
    while (!w->stopped && pthread_cond_timedwait(&w->changed, &w->mutex, &until) == 0)
        ;
    pthread_mutex_unlock(&w->mutex);
    return sg_error_set(err, SG_STOPPED, "the other end told it");
}

Test(interruptible, with_patience_work_that_ends_by_itself_is_not_asked_to_stop)
{
    work_state w = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    const uint64_t hour_ms = 3600 * 1000;
    const sg_interruptible patient = {.work = work_that_hears, .stop = stop, .user = &w, .patience_ms = hour_ms};
    int number;
    cr_assert_eq(sg_interruptible_run(&patient, &number, NULL), SG_STOPPED);
    cr_assert_not(w.stopped);
}

/* Criterion checks the exit code of the process in which the test runs. */
Test(interruptible, a_second_signal_ends_the_process_at_once, .exit_code = 130)
{
    work_state w = {.send = SIGINT, .ignores_stop = true};
    int number;
    (void)!run(&w, &number, NULL);
    cr_assert_fail("it came back");
}

Test(interruptible, a_signal_after_the_work_does_not_spoil_the_exit_code)
{
    work_state w = {.send = 0};
    int number = 99;
    sg_error err;
    cr_assert_eq(run(&w, &number, &err), SG_DATA);
    raise(SIGTERM);
    raise(SIGINT);
    raise(SIGHUP);
    cr_assert_eq(number, 0);
}
