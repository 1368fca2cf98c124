/* common/rpc_library.c - see rpc_library.h. The only process-wide state of shardgrad, because gRPC's log function is
 * process-wide and takes no user pointer. */
#include "common/rpc_library.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <grpc/support/log.h>

#include "common/rpc_handshakes.h"

typedef struct attached attached;
struct attached {
    const sg_log *log;
    size_t in_use; /* lines under way */
    attached *next;
};

static struct {
    pthread_mutex_t mutex; /* guards the rest; never held while a line is written */
    pthread_cond_t idle;
    attached *newest;
    size_t n_users;
} library = {.mutex = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_quiet;

void sg_rpc_library_log_quiet(bool quiet)
{
    is_quiet = quiet;
}

static void log_grpc(gpr_log_func_args *args)
{
    bool told_otherwise = sg_rpc_handshakes_hear(args->message);
    pthread_mutex_lock(&library.mutex);
    attached *to = library.newest;
    if (to != NULL)
        to->in_use++;
    pthread_mutex_unlock(&library.mutex);
    if (to == NULL)
        return;
    char text[SG_ERROR_MESSAGE_BYTES];
    bool grave = args->severity == GPR_LOG_SEVERITY_ERROR && !is_quiet && !told_otherwise;
    sg_log_level level = grave ? SG_LOG_WARN : SG_LOG_DEBUG;
    sg_log_event(to->log, level, "grpc", "message=%s", sg_log_quote(args->message, text, sizeof(text)));
    pthread_mutex_lock(&library.mutex);
    to->in_use--;
    pthread_cond_broadcast(&library.idle);
    pthread_mutex_unlock(&library.mutex);
}

void sg_rpc_library_retain(void)
{
    pthread_mutex_lock(&library.mutex);
    if (library.n_users++ == 0)
        gpr_set_log_function(log_grpc);
    pthread_mutex_unlock(&library.mutex);
    grpc_init();
}

void sg_rpc_library_release(void)
{
    grpc_shutdown();
    pthread_mutex_lock(&library.mutex);
    if (--library.n_users == 0)
        gpr_set_log_function(NULL); /* a host that uses gRPC itself gets its default back */
    pthread_mutex_unlock(&library.mutex);
}

void sg_rpc_library_log_attach(const sg_log *log)
{
    if (log == NULL)
        return;
    attached *entry = sg_xcalloc(1, sizeof(*entry));
    pthread_mutex_lock(&library.mutex);
    *entry = (attached){.log = log, .next = library.newest};
    library.newest = entry;
    pthread_mutex_unlock(&library.mutex);
}

void sg_rpc_library_log_detach(const sg_log *log)
{
    if (log == NULL)
        return;
    pthread_mutex_lock(&library.mutex);
    attached **at = &library.newest;
    while (*at != NULL && (*at)->log != log)
        at = &(*at)->next;
    attached *entry = *at;
    SG_ASSERT(entry != NULL);
    *at = entry->next;
    while (entry->in_use > 0)
        pthread_cond_wait(&library.idle, &library.mutex);
    pthread_mutex_unlock(&library.mutex);
    free(entry);
}

void sg_rpc_library_prepare_event(sg_rpc_event *event, sg_rpc_event_fn on_done)
{
    atomic_store_explicit(&event->on_done, on_done, memory_order_release);
}

bool sg_rpc_library_poll_once(grpc_completion_queue *queue)
{
    grpc_event event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (event.type == GRPC_QUEUE_SHUTDOWN)
        return false;
    sg_rpc_event *done = event.tag;
    atomic_load_explicit(&done->on_done, memory_order_acquire)(done, event.success != 0);
    return true;
}

void sg_rpc_library_poll(grpc_completion_queue *queue)
{
    while (sg_rpc_library_poll_once(queue))
        ;
}

void sg_rpc_library_queue_destroy(grpc_completion_queue *queue)
{
    grpc_completion_queue_shutdown(queue);
    sg_rpc_library_poll(queue);
    grpc_completion_queue_destroy(queue);
}
