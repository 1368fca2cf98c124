/* Who is waited for: in the words of a parked pull, and in the log when it takes long. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/shorten.h"

#define LOOK_EVERY_MS   1000u
#define MAX_NAMED       4u
#define WAIT_TEXT_BYTES 400
#define SHOWN_BYTES     56u /* of an address, so that all that are named fit */

static void append(char *out, size_t out_bytes, const char *text)
{
    size_t used = strlen(out);
    snprintf(out + used, out_bytes - used, "%s", text);
}

/* "worker 1 (host:4242), worker 3 (host:4343)" */
static void name_workers(sg_store *store, const sg_workers *missing, char *out, size_t out_bytes)
{
    char text[320], shown[256];
    uint32_t named = 0, count = sg_workers_count(missing);
    out[0] = '\0';
    pthread_rwlock_rdlock(&store->lock);
    for (uint32_t worker = 0; named < MAX_NAMED && sg_workers_next(missing, worker, &worker); worker++, named++) {
        const char *address = worker < store->options.max_workers ? store->workers[worker].address : NULL;
        snprintf(shown, sizeof shown, "%s", address ? address : "address unknown");
        sg_shorten(shown, SHOWN_BYTES);
        snprintf(text, sizeof text, "%sworker %" PRIu32 " (%s)", named ? ", " : "", worker, shown);
        append(out, out_bytes, text);
    }
    pthread_rwlock_unlock(&store->lock);
    if (count > named) {
        snprintf(text, sizeof text, " and %" PRIu32 " more", count - named);
        append(out, out_bytes, text);
    }
}

void sg_store_describe_wait(sg_store *store, sg_store_slice *slice, uint64_t wanted, char *out, size_t out_bytes)
{
    sg_workers missing;
    if (sg_store_norms_describe(store, slice, out, out_bytes))
        return;
    pthread_mutex_lock(&slice->mutex);
    uint64_t step = slice->round.step;
    bool known = sg_round_missing(&slice->round, &missing);
    pthread_mutex_unlock(&slice->mutex);
    char who[WAIT_TEXT_BYTES - 64];
    if (known)
        name_workers(store, &missing, who, sizeof who);
    if (known)
        snprintf(out, out_bytes, "waiting for %s, group %" PRIu32 ", step %" PRIu64, who, slice->group, step);
    else if (!sg_store_is_sync(store))
        snprintf(out, out_bytes, "waiting for a push, group %" PRIu32 ", version %" PRIu64, slice->group, wanted);
    else
        snprintf(out, out_bytes, "waiting for the first push, group %" PRIu32 ", step %" PRIu64, slice->group, step);
}

/* The round that has held up somebody for the longest; NULL if none does. */
static sg_store_slice *find_oldest(sg_store *store, uint64_t *opened_ms)
{
    sg_store_slice *oldest = NULL;
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_store_slice *slice = &store->slices[i];
        sg_workers missing;
        pthread_mutex_lock(&slice->mutex);
        bool waits = slice->newest && (slice->between.exchange != 0 || sg_round_holds_up(&slice->round, &missing));
        uint64_t opened = slice->opened_ms;
        pthread_mutex_unlock(&slice->mutex);
        if (waits && (!oldest || opened < *opened_ms)) {
            oldest = slice;
            *opened_ms = opened;
        }
    }
    return oldest;
}

void sg_store_watch(sg_store *store, uint64_t now_ms)
{
    if (now_ms < store->watch.looked_ms + LOOK_EVERY_MS)
        return;
    store->watch.looked_ms = now_ms;
    pthread_rwlock_rdlock(&store->lock);
    bool running = store->committed && store->failure == SG_OK;
    pthread_rwlock_unlock(&store->lock);
    uint64_t opened_ms = 0;
    sg_store_slice *slice = running ? find_oldest(store, &opened_ms) : NULL;
    if (!slice)
        return;
    if (opened_ms != store->watch.opened_ms) {
        store->watch.opened_ms = opened_ms;
        store->watch.interval_ms = store->options.warn_after_ms;
    }
    if (now_ms < opened_ms + store->watch.interval_ms)
        return;
    store->watch.interval_ms *= 2;
    char text[WAIT_TEXT_BYTES], quoted[WAIT_TEXT_BYTES + 16];
    sg_store_describe_wait(store, slice, 0, text, sizeof text);
    sg_log_warn(store->options.log, "waiting", "for=%s waited_ms=%" PRIu64,
                sg_log_quote_whom(text, quoted, sizeof quoted), now_ms - opened_ms);
}
