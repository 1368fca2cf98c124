/* server/coordinator_members.c - the workers of the job: hello, and the incarnations that it gives out. */
#include <stdlib.h>

#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

/* Incarnations count from (life & START_MASK) << START_SHIFT: 19 random bits, and 2^31 lives below the generation. */
#define START_MASK  UINT64_C(0x7ffff)
#define START_SHIFT 12u

bool sg_coordinator_members_live(const sg_coordinator_worker *worker)
{
    return worker->state == SG_COORDINATOR_WORKER_HELLO || worker->state == SG_COORDINATOR_WORKER_JOINED;
}

uint32_t sg_coordinator_members_n_live(const sg_coordinator *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_workers; i++)
        n += sg_coordinator_members_live(&c->workers[i]);
    return n;
}

bool sg_coordinator_members_any(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (c->workers[i].member)
            return true;
    }
    return false;
}

/* --- hello ------------------------------------------------------------------------------------------------------ */

/* Those who train on other data are at other places of it in the same iteration. */
static sg_status check_data(const sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, sg_error *err)
{
    for (uint32_t i = 0; i < c->n_workers && request->data_examples != 0; i++) {
        const sg_coordinator_worker *other = &c->workers[i];
        char name[SG_COORDINATOR_TEXT_BYTES];
        if (i != request->worker && sg_coordinator_members_live(other) && other->data_examples != 0 &&
            other->data_examples != request->data_examples)
            return sg_error_set(err, SG_MISMATCH,
                                "worker %" PRIu32 " has a data set of %" PRIu64 " examples, %s one of %" PRIu64
                                ": give all workers the same files",
                                request->worker, request->data_examples, sg_coordinator_worker_name(c, i, name),
                                other->data_examples);
    }
    return SG_OK;
}

/* Errors: MISMATCH, CONFIG, INVALID. */
static sg_status check(const sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, sg_error *err)
{
    const char *job = sg_coordinator_text(request->job);
    if (request->protocol_version != SG_COORDINATOR_PROTOCOL)
        return sg_error_set(err, SG_MISMATCH,
                            "worker %" PRIu32 " speaks protocol version %" PRIu32 ", the coordinator %u: "
                            "run the same version of shardgrad everywhere",
                            request->worker, request->protocol_version, SG_COORDINATOR_PROTOCOL);
    if (strcmp(job, c->config->job) != 0)
        return sg_error_set(err, SG_MISMATCH,
                            "worker %" PRIu32 " belongs to job '%.100s', this coordinator to job '%s': "
                            "check the address, or use one cluster file",
                            request->worker, job, c->config->job);
    if (request->worker >= c->n_workers)
        return sg_error_set(err, SG_CONFIG,
                            "worker %" PRIu32 ": indices are 0 to %" PRIu32 " (max_workers is %" PRIu32
                            "): take a lower index or raise max_workers",
                            request->worker, c->n_workers - 1, c->n_workers);
    if (request->life == 0)
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " gave life 0, wanted a random number", request->worker);
    if (request->generation >= SG_COORDINATOR_MAX_GENERATION)
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " was in generation %" PRIu64 ", wanted one below %u",
                            request->worker, request->generation, SG_COORDINATOR_MAX_GENERATION);
    sg_status status = check_data(c, request, err);
    if (status != SG_OK || request->n_settings == 0)
        return status;
    char whose[32];
    snprintf(whose, sizeof whose, "worker %" PRIu32, request->worker);
    return sg_coordinator_settings_compare(c, request->settings, request->n_settings, whose, err);
}

static bool is_past_life(const sg_coordinator_worker *worker, uint64_t life)
{
    for (uint32_t i = 0; i < worker->n_past_lives && i < SG_COORDINATOR_PAST_LIVES; i++) {
        if (worker->past_lives[i].life == life)
            return true;
    }
    return false;
}

sg_coordinator_life sg_coordinator_life_of(const sg_coordinator *c, uint32_t index)
{
    const sg_coordinator_worker *worker = &c->workers[index];
    return (sg_coordinator_life){.worker = index,
                                 .incarnation = worker->incarnation,
                                 .member = worker->member,
                                 .member_from = worker->member_from};
}

void sg_coordinator_members_fence(sg_coordinator *c, uint32_t index, const uint64_t *pushed)
{
    sg_coordinator_life life = sg_coordinator_life_of(c, index);
    sg_coordinator_steps_excuse(c, &life, pushed);
    c->workers[index].member = false;
    sg_coordinator_init_gone(c, index);
}

/* Counts up from where the first life, which is random, says: so a coordinator that was started anew gives out others
 * than the one before, whose workers may still be there. */
static uint64_t next_incarnation(sg_coordinator *c, uint64_t life)
{
    if (c->counter == 0)
        c->counter = (life & START_MASK) << START_SHIFT;
    return c->generation << 32 | ++c->counter;
}

static void begin_incarnation(sg_coordinator_worker *worker)
{
    free(worker->groups);
    worker->groups = NULL;
    worker->state = SG_COORDINATOR_WORKER_HELLO;
    worker->declared = worker->given_up = worker->in_cut = worker->in_newest = 0;
    worker->gives_up = false;
    worker->called = worker->asked = worker->resting = worker->member = worker->told = false;
}

static void begin_life(sg_coordinator *c, uint32_t index, const Shardgrad__V1__HelloRequest *request)
{
    sg_coordinator_worker *worker = &c->workers[index];
    if (worker->life != 0) {
        if (sg_coordinator_members_live(worker)) {
            char name[SG_COORDINATOR_TEXT_BYTES];
            sg_coordinator_log(c, SG_LOG_WARN, "superseded", "worker=%" PRIu32 " was=%s", index,
                               sg_coordinator_worker_name(c, index, name));
            worker->state = SG_COORDINATOR_WORKER_LOST;
            sg_coordinator_losses_take(c, index);
        }
        sg_coordinator_news_note_past(c, index);
        worker->past_lives[worker->n_past_lives++ % SG_COORDINATOR_PAST_LIVES] = (sg_coordinator_past_life){
            .life = worker->life == request->life ? 0 : worker->life, .incarnation = worker->incarnation};
    }
    worker->returned &= worker->life == request->life;
    free(worker->address);
    worker->address = sg_coordinator_clean(request->address);
    worker->life = request->life;
    worker->data_examples = request->data_examples;
    worker->incarnation = next_incarnation(c, request->life);
    worker->replaced = 0;
    begin_incarnation(worker);
    worker->loss = 0;
    worker->examples = worker->late = 0;
    sg_coordinator_order_admit_all(c, index);
}

void sg_coordinator_members_recall(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_worker *worker = &c->workers[index];
    bool is_silent = worker->life != 0 && worker->state == SG_COORDINATOR_WORKER_WAITING; /* and may say hello again */
    if (!is_silent && !sg_coordinator_members_live(worker))
        return;
    uint64_t old = worker->incarnation;
    worker->incarnation = next_incarnation(c, worker->life);
    begin_incarnation(worker);
    worker->replaced = old;
    if (is_silent)
        worker->state = SG_COORDINATOR_WORKER_WAITING;
    worker->returned = false;
    worker->heard_ms = c->now_ms;
    sg_coordinator_parked *call;
    TAILQ_FOREACH(call, &c->parked, link)
    {
        if (call->kind == SG_COORDINATOR_PARKED_HELLO && call->worker == index && call->incarnation == old)
            call->incarnation = worker->incarnation;
    }
}

/* Steps in which it was to take part and that it has not finished. */
static uint64_t n_missed(const sg_coordinator *c, const sg_coordinator_worker *worker)
{
    uint64_t n = 0;
    for (uint32_t i = 0; worker->groups != NULL && i < c->n_groups; i++) {
        const sg_coordinator_progress *progress = &worker->groups[i];
        uint64_t from = progress->finished > progress->first ? progress->finished : progress->first;
        n += progress->granted > 0 && c->groups[i].next_step > from ? c->groups[i].next_step - from : 0;
    }
    return n;
}

/* Others closed a step without it: it is excused from all that it has not finished, and joins again as one who comes
 * late. It keeps its life. */
static void fall_behind(sg_coordinator *c, uint32_t index, const Shardgrad__V1__HelloRequest *request)
{
    sg_coordinator_worker *worker = &c->workers[index];
    sg_coordinator_leases_note_begun(c, worker, request->progress, request->n_progress);
    uint64_t missed = n_missed(c, worker);
    worker->late += missed;
    sg_coordinator_log(c, SG_LOG_INFO, "late", "worker=%" PRIu32 " steps=%" PRIu64 " in_all=%" PRIu64, index, missed,
                       worker->late);
    sg_coordinator_members_fence(c, index, NULL);
    uint64_t old = worker->incarnation;
    sg_coordinator_members_recall(c, index);
    worker->given_up = old;
    sg_coordinator_order_admit_all(c, index);
}

/* It lost nothing but its place: it never got the answer to its hello, which may have been lost in silence for longer
 * than a lease, or it has dropped all that it had, because it missed a ps. */
static bool may_have_another(const sg_coordinator_worker *worker, const Shardgrad__V1__HelloRequest *request)
{
    return worker->state == SG_COORDINATOR_WORKER_LOST &&
           (!worker->called || (request->gives_up != 0 && request->gives_up == worker->incarnation));
}

/* False: the call was failed. */
static bool accept_life(sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, void *call)
{
    sg_coordinator_worker *worker = &c->workers[request->worker];
    char name[SG_COORDINATOR_TEXT_BYTES];
    sg_coordinator_worker_name(c, request->worker, name);
    bool is_after_another = request->after != 0 && worker->life != 0 && worker->life != request->life &&
                            worker->incarnation != request->after;
    if (is_past_life(worker, request->life) || is_after_another) {
        sg_coordinator_fail(c, call, SG_FENCED, "%s has taken the index of this process: end", name);
        return false;
    }
    if (worker->life != request->life || may_have_another(worker, request)) {
        if (sg_coordinator_orders_refuse(c, call))
            return false;
        begin_life(c, request->worker, request);
        return true;
    }
    if (worker->state == SG_COORDINATOR_WORKER_LEFT || worker->state == SG_COORDINATOR_WORKER_LOST) {
        sg_coordinator_fail(c, call, SG_FENCED, "this life of %s %s: come again as a new one", name,
                            worker->state == SG_COORDINATOR_WORKER_LEFT ? "has left" : "was given up for lost");
        return false;
    }
    if (request->late != 0 && request->late == worker->incarnation && worker->state == SG_COORDINATOR_WORKER_JOINED &&
        c->config->update.backup_workers > 0 && !sg_coordinator_is_async(c)) {
        if (sg_coordinator_orders_refuse(c, call))
            return false;
        fall_behind(c, request->worker, request);
    }
    if (worker->state == SG_COORDINATOR_WORKER_WAITING)
        worker->state = SG_COORDINATOR_WORKER_HELLO; /* it had fallen silent before it was answered */
    return true;
}

static bool is_known(const sg_coordinator *c, const Shardgrad__V1__HelloRequest *request)
{
    const sg_coordinator_worker *worker = &c->workers[request->worker];
    return worker->life == request->life || is_past_life(worker, request->life);
}

/* The newest generation that it says it was in; 0: none. */
static uint64_t generation_known(const Shardgrad__V1__HelloRequest *request)
{
    const uint64_t after = sg_coordinator_generation_of(request->after);
    return request->generation > after ? request->generation : after;
}

/* It has been in a generation that this coordinator, which was started anew, did not begin. */
static bool knows_more(const sg_coordinator *c, const Shardgrad__V1__HelloRequest *request)
{
    const bool remembers_all = c->workers[request->worker].n_past_lives <= SG_COORDINATOR_PAST_LIVES;
    return request->generation > c->generation ||
           (request->generation == c->generation && !is_known(c, request) && remembers_all);
}

/* Its values would be taken for the initial ones. */
static bool refuse_trained(sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, void *call)
{
    sg_error err;
    if (!request->has_trained || c->restores || c->has_trained)
        return false;
    (void)!sg_error_set(&err, SG_CONFIG,
                        "worker %" PRIu32 " has trained, and the job begins from nothing%s: start the worker anew, too",
                        request->worker,
                        sg_coordinator_save_due(c) ? " (restore: none, or checkpoint.dir was emptied or is not mounted)"
                                                   : ", since checkpoint.dir is not set");
    sg_coordinator_log_refused(c, "worker", request->worker, request->address, &err);
    sg_coordinator_fail_error(c, call, &err);
    return true;
}

/* Where records are kept they know all generations; else each coordinator has its own. False: the call was failed, and
 * the job perhaps with it. */
static bool heed_generation(sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, void *call)
{
    const bool more = knows_more(c, request);
    if (sg_coordinator_save_due(c)) {
        const uint64_t known = generation_known(request);
        const bool contradicts = more || known > c->generation;
        if (contradicts)
            sg_coordinator_generation_contradicted(c, "worker", request->worker, request->address, known, call);
        return !contradicts && !refuse_trained(c, request, call);
    }
    if (refuse_trained(c, request, call)) /* which is no reason to go back */
        return false;
    if (more && sg_coordinator_generation_may_follow(c))
        sg_coordinator_generation_next(c, request->generation, "a worker knows of a later generation");
    return true;
}

/* It missed a ps and dropped what it had, where no generation has begun since. Where a ps is lost one will, and answers
 * its hello; where all are there, because only ps 0 stood still or the network did, it is let in again in this one. If
 * that helps it no step further it keeps no lease: others must not wait for it for ever. */
static bool gives_up_now(const sg_coordinator *c, const sg_coordinator_worker *worker,
                         const Shardgrad__V1__HelloRequest *request)
{
    return request->generation >= c->generation && worker->state == SG_COORDINATOR_WORKER_JOINED &&
           (request->gives_up == 0 || request->gives_up == worker->incarnation);
}

void sg_coordinator_members_hello(sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, void *call)
{
    sg_error err;
    if (check(c, request, &err) != SG_OK) {
        sg_coordinator_log_refused(c, "worker", request->worker, request->address, &err);
        sg_coordinator_fail_error(c, call, &err);
        return;
    }
    if (!sg_coordinator_takes(c, call, c->n_workers))
        return;
    if (!heed_generation(c, request, call))
        return;
    bool returns = request->generation != 0 && request->generation < c->generation && !is_known(c, request);
    if (!accept_life(c, request, call))
        return;
    c->has_returned = c->has_returned || returns;
    sg_coordinator_worker *worker = &c->workers[request->worker];
    bool gives_up = gives_up_now(c, worker, request);
    if (gives_up && !worker->gives_up)
        worker->gave_up_ms = c->now_ms;
    worker->gives_up = gives_up && request->gives_up != 0;
    if (!gives_up || (worker->gives_up && !worker->returned))
        worker->heard_ms = c->now_ms;
    sg_coordinator_park(c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_HELLO,
                                                    .call = call,
                                                    .worker = request->worker,
                                                    .after = gives_up ? c->generation : 0,
                                                    .incarnation = worker->incarnation});
}

static bool all_ps_heard_since(const sg_coordinator *c, uint64_t ms)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].heard_ms <= ms)
            return false;
    }
    return sg_coordinator_ps_complete(c);
}

/* It keeps its life, and its place in the steps that are frozen. */
static void let_in_again(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_worker *worker = &c->workers[index];
    sg_coordinator_log(c, SG_LOG_INFO, "returns", "worker=%" PRIu32 " was=%" PRIx64, index, worker->incarnation);
    sg_coordinator_losses_return(c, index);
    sg_coordinator_news_note_past(c, index);
    sg_coordinator_members_recall(c, index);
    worker->returned = true;
    sg_coordinator_order_admit_all(c, index);
    sg_coordinator_parked *call;
    TAILQ_FOREACH(call, &c->parked, link)
    {
        if (call->kind == SG_COORDINATOR_PARKED_HELLO && call->worker == index)
            call->after = 0;
    }
}

bool sg_coordinator_members_advance(sg_coordinator *c)
{
    bool moved = false;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        const sg_coordinator_worker *worker = &c->workers[i];
        if (!worker->gives_up || worker->returned || worker->state != SG_COORDINATOR_WORKER_JOINED ||
            !all_ps_heard_since(c, worker->gave_up_ms) || sg_coordinator_orders_full(c))
            continue;
        let_in_again(c, i);
        moved = true;
    }
    return moved;
}

static void reply_hello(sg_coordinator *c, const sg_coordinator_parked *call)
{
    Shardgrad__V1__HelloResponse response = SHARDGRAD__V1__HELLO_RESPONSE__INIT;
    char **addresses = sg_xcalloc(c->n_ps, sizeof *addresses);
    for (uint32_t i = 0; i < c->n_ps; i++)
        addresses[i] = c->ps[i].address;
    response.incarnation = call->incarnation;
    response.generation = c->generation;
    response.mode = (Shardgrad__V1__Mode)c->config->update.mode;
    response.lease_ms = c->config->lease_ms;
    response.park_ms = c->config->park_ms;
    response.slice_bytes = c->config->slice_bytes;
    response.message_bytes = c->config->message_bytes;
    response.ps_addresses = addresses;
    response.n_ps_addresses = c->n_ps;
    response.workers = (uint32_t)c->config->workers;
    response.backup_workers = sg_coordinator_is_async(c) ? 0 : c->config->update.backup_workers;
    response.staleness = c->config->update.mode == SG_MODE_SSP ? c->config->update.staleness : 0;
    response.recovers = sg_coordinator_save_due(c);
    response.gradients = c->config->update.wire == SG_WIRE_BF16 ? SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_BFLOAT16
                                                                : SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    sg_coordinator_reply(c, call->call, &response.base);
    free(addresses);
}

bool sg_coordinator_members_answer_hello(sg_coordinator *c, const sg_coordinator_parked *call)
{
    if (!sg_coordinator_ps_complete(c) || call->after >= c->generation)
        return false;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].admitted[call->worker] != call->incarnation)
            return false;
    }
    sg_coordinator_worker *worker = &c->workers[call->worker];
    if (worker->state == SG_COORDINATOR_WORKER_HELLO) {
        worker->state = SG_COORDINATOR_WORKER_JOINED;
        sg_coordinator_log(c, SG_LOG_INFO, "joined", "worker=%" PRIu32 " address=%s incarnation=%" PRIx64, call->worker,
                           worker->address[0] == '\0' ? "-" : worker->address, worker->incarnation);
    }
    worker->heard_ms = c->now_ms;
    reply_hello(c, call);
    return true;
}
