/* worker/train/pools.c - see pools.h. */
#include "worker/train/pools.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/status.h"
#include "kernels/kernel.h"

#define MAX_WORDS ((size_t)1024)

static void free_words(char **words)
{
    for (char **word = words; *word; word++)
        free(*word);
    free(words);
}

/* The words of this program's command line, and a NULL, each to be freed; NULL: not to be had. */
static char **read_words(void)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    if (!file)
        return NULL;
    char **words = sg_xcalloc(MAX_WORDS + 1, sizeof *words);
    size_t n_words = 0, capacity = 0;
    while (n_words < MAX_WORDS && getdelim(&words[n_words], &capacity, '\0', file) > 0) {
        n_words++;
        capacity = 0;
    }
    free(words[n_words]); /* what the read that failed may have taken */
    words[n_words] = NULL;
    const bool is_whole = n_words > 0 && feof(file) != 0;
    fclose(file);
    if (is_whole)
        return words;
    free_words(words);
    return NULL;
}

void sg_pools_let_rest(uint32_t n_threads)
{
    static const char name[] = "OMP_WAIT_POLICY";
    if (n_threads < 2 || !sg_kernel_onednn() || getenv(name) || setenv(name, "passive", 1) != 0)
        return;
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1); /* by its own name, which ps(1) shows */
    char **words = length > 0 ? read_words() : NULL;
    if (!words)
        return;
    path[length] = '\0';
    execv(path, words);
    free_words(words);
}
