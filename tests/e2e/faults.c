/* tests/e2e/faults.c - does on purpose what a sanitizer finds: tests/e2e/sanitizers.py looks whether it is told.
 *
 *     faults leak|overrun|overflow|race */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int counter;

static void *count(void *unused)
{
    counter++;
    return unused;
}

static void race(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, count, NULL) != 0)
        exit(1);
    counter++;
    pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
    const char *fault = argc > 1 ? argv[1] : "";
    volatile int most = INT_MAX;
    char *volatile room = malloc(4);
    if (strcmp(fault, "overrun") == 0)
        room[argc + 2] = 1;
    if (strcmp(fault, "overflow") == 0)
        counter = most + argc;
    if (strcmp(fault, "race") == 0)
        race();
    if (strcmp(fault, "leak") != 0)
        free(room);
    room = NULL;
    return 0;
}
