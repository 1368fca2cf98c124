/* server/coordinator_who.c - who calls, and how workers and ps are called in words. */
#include <ctype.h>
#include <stdlib.h>

#include "common/shorten.h"
#include "server/coordinator_internal.h"

#define SHOWN_BYTES 200u /* of an address */

/* --- words ------------------------------------------------------------------------------------------------------ */

const char *sg_coordinator_text(const char *text)
{
    return text == NULL ? "" : text;
}

char *sg_coordinator_clean(const char *text)
{
    char *clean = sg_xprintf("%.255s", sg_coordinator_text(text));
    for (char *at = clean; *at != '\0'; at++) {
        if (!isgraph((unsigned char)*at) || *at == '"')
            *at = '?';
    }
    return clean;
}

void sg_coordinator_log_refused(sg_coordinator *c, const char *who, uint32_t index, const char *address,
                                const sg_error *err)
{
    char quoted[SG_LOG_QUOTED_BYTES];
    char *clean = sg_coordinator_clean(address);
    sg_coordinator_log(c, SG_LOG_WARN, "refused", "%s=%" PRIu32 " address=%s status=%s reason=%s", who, index,
                       clean[0] != '\0' ? clean : "unknown", sg_status_name(err->code),
                       sg_log_quote(err->message, quoted, sizeof quoted));
    free(clean);
}

/* "ps 0 (node7:4000)"; of a long address both ends. */
static const char *put_name(const char *role, uint32_t index, const char *address, char out[SG_COORDINATOR_TEXT_BYTES])
{
    char shown[SG_COORDINATOR_TEXT_BYTES];
    snprintf(shown, sizeof shown, "%s", sg_coordinator_text(address));
    sg_shorten(shown, SHOWN_BYTES);
    if (shown[0] == '\0')
        snprintf(out, SG_COORDINATOR_TEXT_BYTES, "%s %" PRIu32, role, index);
    else
        snprintf(out, SG_COORDINATOR_TEXT_BYTES, "%s %" PRIu32 " (%.*s)", role, index, (int)SHOWN_BYTES, shown);
    return out;
}

const char *sg_coordinator_worker_name(const sg_coordinator *c, uint32_t worker, char out[SG_COORDINATOR_TEXT_BYTES])
{
    return put_name("worker", worker, c->workers[worker].address, out);
}

const char *sg_coordinator_ps_name(const sg_coordinator *c, uint32_t ps, char out[SG_COORDINATOR_TEXT_BYTES])
{
    return put_name("ps", ps, c->ps[ps].address, out);
}

/* --- who calls -------------------------------------------------------------------------------------------------- */

uint32_t sg_coordinator_index(const sg_coordinator *c, const sg_coordinator_worker *worker)
{
    return (uint32_t)(worker - c->workers);
}

/* The index that once had this incarnation, by what is remembered; n_workers: none. */
static uint32_t find_past(const sg_coordinator *c, uint64_t incarnation)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        const sg_coordinator_worker *worker = &c->workers[i];
        for (uint32_t k = 0; k < worker->n_past_lives && k < SG_COORDINATOR_PAST_LIVES; k++) {
            if (worker->past_lives[k].incarnation == incarnation)
                return i;
        }
    }
    return c->n_workers;
}

uint32_t sg_coordinator_find_incarnation(const sg_coordinator *c, uint64_t incarnation)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (incarnation != 0 && c->workers[i].incarnation == incarnation)
            return i;
    }
    return c->n_workers;
}

bool sg_coordinator_takes(sg_coordinator *c, void *call, uint32_t worker)
{
    if (c->over)
        sg_coordinator_end_answer(c, call, worker);
    else if (c->recording)
        sg_coordinator_fail(c, call, SG_NOT_READY, "the job begins another generation: ask again");
    return !c->over && !c->recording;
}

bool sg_coordinator_is_meant(sg_coordinator *c, void *call, const char *job)
{
    const char *meant = sg_coordinator_text(job);
    if (meant[0] == '\0' || strcmp(meant, c->config->job) == 0)
        return true;
    sg_coordinator_fail(c, call, SG_MISMATCH,
                        "job '%.100s' was meant, this coordinator belongs to job '%s': check the address, or use the "
                        "cluster file of that job",
                        meant, c->config->job);
    return false;
}

/* The index whose process had it and was let in again; n_workers: none. */
static uint32_t find_replaced(const sg_coordinator *c, uint64_t incarnation)
{
    uint32_t i = 0;
    while (i < c->n_workers && (incarnation == 0 || c->workers[i].replaced != incarnation))
        i++;
    return i;
}

static void fail_unknown(sg_coordinator *c, void *call, uint64_t incarnation)
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    uint32_t past = find_past(c, incarnation), replaced = find_replaced(c, incarnation);
    if (past < c->n_workers)
        sg_coordinator_fail(c, call, SG_FENCED, "incarnation %" PRIx64 " of worker %" PRIu32 " was superseded by %s",
                            incarnation, past, sg_coordinator_worker_name(c, past, name));
    else if (replaced < c->n_workers)
        sg_coordinator_fail(
            c, call, SG_FENCED,
            "%s was let in again, and calls as incarnation %" PRIx64 ", which has passed: it is %" PRIx64 " now",
            sg_coordinator_worker_name(c, replaced, name), incarnation, c->workers[replaced].incarnation);
    else
        sg_coordinator_fail(c, call, SG_FENCED, "incarnation %" PRIx64 " is not known here: say hello first",
                            incarnation);
}

sg_coordinator_worker *sg_coordinator_known(sg_coordinator *c, void *call, uint64_t incarnation, uint64_t generation)
{
    uint32_t index = sg_coordinator_find_incarnation(c, incarnation);
    if (!sg_coordinator_takes(c, call, index))
        return NULL;
    if (index == c->n_workers && incarnation != 0 && sg_coordinator_generation_of(incarnation) < c->generation) {
        sg_coordinator_fail(c, call, SG_ROLLED_BACK, "generation %" PRIu64 " has passed, the job is in %" PRIu64 ": %s",
                            sg_coordinator_generation_of(incarnation), c->generation, c->why);
        return NULL;
    }
    if (index == c->n_workers || c->workers[index].state == SG_COORDINATOR_WORKER_WAITING ||
        c->workers[index].state == SG_COORDINATOR_WORKER_HELLO) {
        fail_unknown(c, call, incarnation);
        return NULL;
    }
    sg_coordinator_worker *worker = &c->workers[index];
    char name[SG_COORDINATOR_TEXT_BYTES];
    sg_coordinator_worker_name(c, index, name);
    if (worker->state == SG_COORDINATOR_WORKER_LEFT || worker->state == SG_COORDINATOR_WORKER_LOST) {
        sg_coordinator_fail(c, call, SG_FENCED, "%s %s: say hello as a new life to come again", name,
                            worker->state == SG_COORDINATOR_WORKER_LEFT ? "has left" : "was given up for lost");
        return NULL;
    }
    if (generation != c->generation) {
        sg_coordinator_fail(c, call, generation < c->generation ? SG_ROLLED_BACK : SG_INVALID,
                            "%s called in generation %" PRIu64 ", the job is in %" PRIu64, name, generation,
                            c->generation);
        return NULL;
    }
    worker->heard_ms = c->now_ms;
    worker->called = true;
    return worker;
}
