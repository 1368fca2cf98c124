/* server/coordinator_waits.c - for whom the job waits, and each call. */
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

static const char *missing_ps(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].state == SG_COORDINATOR_PS_WAITING) {
            snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for ps %" PRIu32 " to register (%zu wanted)", i,
                     c->config->ps.n);
            return out;
        }
    }
    return NULL;
}

bool sg_coordinator_waits_awaits(const sg_coordinator *c, uint32_t index)
{
    if (!c->started && sg_coordinator_generation_awaits_members(c))
        return sg_workers_has(&c->awaited, index) && c->workers[index].state != SG_COORDINATOR_WORKER_LEFT;
    uint32_t n_here = 0;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        bool left_early = c->workers[i].state == SG_COORDINATOR_WORKER_LEFT && i < c->config->workers;
        n_here += left_early || sg_coordinator_members_live(&c->workers[i]);
    }
    return !c->started && index < c->config->workers && n_here < c->config->workers;
}

/* Those who are here, and those who have left: they count as come, but nobody should look for them here. */
static void print_come(const sg_coordinator *c, char out[SG_COORDINATOR_TEXT_BYTES])
{
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < c->n_workers && i < c->config->workers; i++)
        n_left += c->workers[i].state == SG_COORDINATOR_WORKER_LEFT;
    const uint32_t n_here = sg_coordinator_tickets_n_asked(c) - n_left;
    if (n_left == 0)
        snprintf(out, SG_COORDINATOR_TEXT_BYTES, "%" PRIu32 " here", n_here);
    else
        snprintf(out, SG_COORDINATOR_TEXT_BYTES, "%" PRIu32 " here, %" PRIu32 " left", n_here, n_left);
}

static const char *missing_workers(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    uint64_t n_wanted =
        sg_coordinator_generation_awaits_members(c) ? sg_workers_count(&c->awaited) : c->config->workers;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        const sg_coordinator_worker *worker = &c->workers[i];
        bool here =
            worker->state == SG_COORDINATOR_WORKER_LEFT || (sg_coordinator_members_live(worker) && worker->asked);
        bool joined = sg_coordinator_members_live(worker);
        if (here || (!joined && !sg_coordinator_waits_awaits(c, i)))
            continue;
        char name[SG_COORDINATOR_TEXT_BYTES], come[SG_COORDINATOR_TEXT_BYTES];
        print_come(c, come);
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s to %s (%" PRIu64 " wanted, %s)",
                 sg_coordinator_worker_name(c, i, name), joined ? "ask for its first step" : "join", n_wanted, come);
        return out;
    }
    return NULL;
}

/* In every group in which it takes part. */
static bool has_finished(const sg_coordinator *c, uint32_t worker, uint64_t step)
{
    const sg_coordinator_progress *groups = c->workers[worker].groups;
    bool any = false;
    for (uint32_t i = 0; groups != NULL && i < c->n_groups; i++) {
        if (groups[i].granted > 0 && groups[i].finished <= step)
            return false;
        any = any || groups[i].granted > 0;
    }
    return any;
}

/* For how many workers the lowest slice of the ps waits, and the first of them. Its report is as old as its newest
 * registration: who has finished the step since is waited for no more. */
static uint32_t n_missing(const sg_coordinator *c, const Shardgrad__V1__PsReport *report, uint32_t *first)
{
    sg_workers missing;
    uint32_t n = 0;
    if (report == NULL || report->waiting_for.len == 0 ||
        sg_workers_decode(report->waiting_for.data, report->waiting_for.len, &missing, NULL) != SG_OK)
        return 0;
    for (uint32_t worker = 0; sg_workers_next(&missing, worker, &worker) && worker < c->n_workers; worker++) {
        if (has_finished(c, worker, report->min_step))
            continue;
        if (n++ == 0)
            *first = worker;
    }
    return n;
}

/* *known_ms: when the ps that lacks contributions said so. */
static const char *missing_contributions(const sg_coordinator *c, uint64_t *known_ms, char out[SG_ERROR_MESSAGE_BYTES])
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        const Shardgrad__V1__PsReport *report = c->ps[i].report;
        uint32_t worker, n = n_missing(c, report, &worker);
        if (n == 0)
            continue;
        *known_ms = c->ps[i].reported_ms;
        char name[SG_COORDINATOR_TEXT_BYTES], others[32] = "";
        if (n > 1)
            snprintf(others, sizeof others, " and %" PRIu32 " more", n - 1);
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s%s, step %" PRIu64,
                 sg_coordinator_worker_name(c, worker, name), others, report->min_step);
        return out;
    }
    return NULL;
}

static const char *initializer(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    if (c->has_initializer)
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s to initialize",
                 sg_coordinator_worker_name(c, c->initializer, name));
    else
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for a worker to declare its variables and initialize them");
    return out;
}

/* The first request for a ticket that waits for a clock. */
static const char *slow_worker(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    const sg_coordinator_parked *call;
    TAILQ_FOREACH(call, &c->parked, link)
    {
        if (call->kind == SG_COORDINATOR_PARKED_TICKET && sg_coordinator_clocks_waiting(c, call, out) != NULL)
            return out;
    }
    return NULL;
}

/* *known_ms: as of when. */
static const char *waits_for(const sg_coordinator *c, uint64_t *known_ms, char out[SG_ERROR_MESSAGE_BYTES])
{
    out[0] = '\0';
    *known_ms = c->now_ms;
    switch ((int)c->state) {
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS:
        missing_ps(c, out);
        break;
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES:
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_INITIALIZING:
        if (sg_coordinator_orders_unreached(c, out) == NULL)
            initializer(c, out);
        break;
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING:
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_RECOVERING:
        (void)sg_coordinator_orders_unreached(c, out);
        break;
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING:
        if (sg_coordinator_losses_waiting(c, out) != NULL || sg_coordinator_change_waiting(c, out) != NULL)
            break;
        if (!sg_coordinator_save_may_start(c))
            sg_coordinator_save_waits_for(c, out);
        else if (!c->started)
            missing_workers(c, out);
        else if (sg_coordinator_orders_unreached(c, out) == NULL && slow_worker(c, out) == NULL &&
                 missing_contributions(c, known_ms, out) == NULL)
            sg_coordinator_norms_waiting(c, out);
        break;
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING:
        if (c->drain.on)
            sg_coordinator_save_waits_for(c, out);
        break;
    default:
        break;
    }
    return out;
}

const char *sg_coordinator_waits_job(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    uint64_t known_ms;
    return waits_for(c, &known_ms, out);
}

/* The first ps for which `behind` holds, as "waiting for ps 1 (address) to ..."; NULL: none. */
static const char *behind_ps(const sg_coordinator *c, bool (*behind)(const sg_coordinator *, uint32_t, uint32_t),
                             uint32_t worker, const char *to_what, char out[SG_ERROR_MESSAGE_BYTES])
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (!behind(c, i, worker))
            continue;
        if (sg_coordinator_orders_unreached(c, out) != NULL)
            return out;
        char name[SG_COORDINATOR_TEXT_BYTES];
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s to %s", sg_coordinator_ps_name(c, i, name), to_what);
        return out;
    }
    return NULL;
}

static bool lacks_admit(const sg_coordinator *c, uint32_t ps, uint32_t worker)
{
    return c->ps[ps].admitted[worker] != c->workers[worker].incarnation;
}

static bool lacks_attempt(const sg_coordinator *c, uint32_t ps, uint32_t worker)
{
    (void)worker;
    return c->ps[ps].attempt != c->attempt;
}

static bool lacks_hyper(const sg_coordinator *c, uint32_t ps, uint32_t worker)
{
    (void)worker;
    return c->ps[ps].hyper < c->n_hypers;
}

static bool lacks_commit(const sg_coordinator *c, uint32_t ps, uint32_t worker)
{
    (void)worker;
    return c->committing ? !c->ps[ps].committed : c->ps[ps].sealed != c->attempt;
}

static const char *joiner(const sg_coordinator *c, const sg_coordinator_parked *call, char out[SG_ERROR_MESSAGE_BYTES])
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (i == call->worker || !c->workers[i].member)
            continue;
        char name[SG_COORDINATOR_TEXT_BYTES];
        snprintf(out, SG_ERROR_MESSAGE_BYTES,
                 "waiting for %s to ask for its next step (group %" PRIu32 ", step %" PRIu64 "), to join with it",
                 sg_coordinator_worker_name(c, i, name), call->ask.group, c->groups[call->ask.group].next_step);
        return out;
    }
    return NULL;
}

static const char *recovery(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    sg_error text;
    (void)!sg_error_set(&text, SG_WAITING, "waiting for the job to go back to its newest checkpoint (%s)", c->why);
    snprintf(out, SG_ERROR_MESSAGE_BYTES, "%s", text.message);
    return out;
}

const char *sg_coordinator_waits_parked(const sg_coordinator *c, const sg_coordinator_parked *call,
                                        char out[SG_ERROR_MESSAGE_BYTES])
{
    const char *text = NULL;
    switch (call->kind) {
    case SG_COORDINATOR_PARKED_HELLO:
        text = missing_ps(c, out);
        if (text == NULL && call->after >= c->generation) {
            snprintf(out, SG_ERROR_MESSAGE_BYTES,
                     "waiting for generation %" PRIu64 ": the job goes on in %" PRIu64 ", and ps 0 misses nobody",
                     call->after + 1, c->generation);
            text = out;
        }
        if (text == NULL)
            text = behind_ps(c, lacks_admit, call->worker, "let this worker in", out);
        break;
    case SG_COORDINATOR_PARKED_DECLARE:
        if (c->has_initializer && c->initializer == call->worker)
            text = behind_ps(c, lacks_attempt, call->worker, "get ready for initial values", out);
        if (text == NULL)
            text = initializer(c, out);
        break;
    case SG_COORDINATOR_PARKED_SET:
        text = sg_coordinator_change_waiting(c, out);
        if (text == NULL)
            text = behind_ps(c, lacks_hyper, call->worker, "take the new hyper-parameters", out);
        break;
    case SG_COORDINATOR_PARKED_INITIALIZED:
        text = behind_ps(c, lacks_commit, call->worker, "commit the initial values", out);
        break;
    case SG_COORDINATOR_PARKED_TICKET:
        text = sg_coordinator_losses_waiting(c, out);
        if (text == NULL)
            text = sg_coordinator_change_waiting(c, out);
        if (text == NULL && (c->drain.on || !sg_coordinator_save_may_start(c)))
            text = sg_coordinator_save_waits_for(c, out);
        if (text == NULL)
            text = c->started ? sg_coordinator_clocks_waiting(c, call, out) : missing_workers(c, out);
        if (text == NULL && c->started)
            text = joiner(c, call, out);
        break;
    case SG_COORDINATOR_PARKED_NORMS:
        text = sg_coordinator_norms_waiting_of(c, call->group, out);
        break;
    case SG_COORDINATOR_PARKED_SAVE:
        text = call->save == SG_COORDINATOR_SAVE_LATER ? recovery(c, out) : sg_coordinator_save_waits_for(c, out);
        break;
    }
    if (text == NULL)
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for the cluster to go on");
    return out;
}

void sg_coordinator_waits_tick(sg_coordinator *c)
{
    char text[SG_ERROR_MESSAGE_BYTES], quoted[2 * SG_ERROR_MESSAGE_BYTES];
    uint64_t known_ms;
    waits_for(c, &known_ms, text);
    if (strcmp(text, c->waiting_for) != 0) {
        snprintf(c->waiting_for, sizeof c->waiting_for, "%s", text);
        c->waiting_since_ms = c->now_ms;
        c->warn_at_ms = c->now_ms + c->config->warn_after_ms;
    }
    if (text[0] == '\0' || known_ms < c->warn_at_ms) /* what was true long ago is no reason to warn */
        return;
    uint64_t waited_ms = c->now_ms - c->waiting_since_ms;
    /* A worker that is missing at the start is somebody's to start: it is named again and again. */
    bool missing = c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING && !c->started;
    bool longer = waited_ms > c->config->warn_after_ms && !missing;
    c->warn_at_ms = c->now_ms + (longer ? waited_ms : c->config->warn_after_ms);
    sg_coordinator_log(c, SG_LOG_WARN, "waiting", "for=%s waited_ms=%" PRIu64,
                       sg_log_quote_whom(text, quoted, sizeof quoted), waited_ms);
}
