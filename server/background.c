/* server/background.c - see background.h. */
#include "server/background.h"

#include <pthread.h>
#include <sys/resource.h>

#define NICENESS 10

typedef struct background {
    void (*work)(void *user);
    void *user;
} background;

static void *run(void *user)
{
    const background *b = user;
    /* Linux: of the thread. Where it is refused the work is done no more slowly. */
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    b->work(b->user);
    return NULL;
}

void sg_background_run(void (*work)(void *user), void *user)
{
    background b = {work, user};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, &b) == 0)
        pthread_join(thread, NULL);
    else
        work(user);
}
