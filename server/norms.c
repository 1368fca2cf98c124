/* server/norms.c - see norms.h. */
#include "server/norms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/clock.h"
#include "shardgrad/v1/coordinator.pb-c.h"

#define RETRY_MS 100u

/* One step of a group, from the first question to the answer. */
typedef struct question {
    TAILQ_ENTRY(question) link;
    sg_norms *norms;
    sg_mailbox_item posted, done;
    sg_store_norms what;
    bool under_way;
    sg_rpc_channel *channel; /* that it is asked over, while it is */
    uint64_t next_ms;
    sg_status status; /* of the newest call */
    sg_error error;
} question;

struct sg_norms {
    sg_norms_options options;
    sg_rpc_channel *channel;          /* to the coordinator, as the registrar found it last; NULL: not asked yet */
    TAILQ_HEAD(, question) questions; /* on the loop's thread */
    bool closed;
};

static void question_free(question *q)
{
    free(q->what.squares);
    free(q);
}

static void end(sg_norms *n, question *q)
{
    TAILQ_REMOVE(&n->questions, q, link);
    question_free(q);
}

/* --- the answer --- */

/* The same question may be answered later. */
static bool may_pass(sg_status status)
{
    return status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_WAITING || status == SG_NOT_READY ||
           status == SG_CANCELLED;
}

/* Its rounds are dropped, or the store learns of the end otherwise. */
static bool has_passed(sg_status status)
{
    return status == SG_OK || status == SG_ROLLED_BACK || status == SG_FENCED || status == SG_LATE ||
           status == SG_STOPPED;
}

static void on_done(sg_mailbox_item *item)
{
    question *q = SG_CONTAINER_OF(item, question, done);
    sg_norms *n = q->norms;
    q->under_way = false;
    if (n->closed || has_passed(q->status)) {
        end(n, q);
        return;
    }
    if (may_pass(q->status)) {
        if (q->status == SG_WAITING)
            sg_store_norms_wait(n->options.store, q->what.group, q->what.number, q->error.message);
        q->next_ms = q->status == SG_WAITING ? 0 : sg_clock_ms() + RETRY_MS;
        return;
    }
    char quoted[SG_ERROR_MESSAGE_BYTES + 32];
    sg_log_error(n->options.log, "norms_refused", "group=%" PRIu32 " step=%" PRIu64 " status=%s reason=%s",
                 q->what.group, q->what.step, sg_status_name(q->status),
                 sg_log_quote(q->error.message, quoted, sizeof quoted));
    sg_store_fail_pulls(n->options.store, q->status, q->error.message);
    end(n, q);
}

static sg_status take(question *q, const sg_wire_message *reply, sg_error *err)
{
    sg_wire_parts parts;
    sg_status status =
        sg_rpc_channel_unpack(q->channel, reply, &shardgrad__v1__norms_response__descriptor, &parts, err);
    if (status != SG_OK)
        return status;
    const Shardgrad__V1__NormsResponse *response = (const Shardgrad__V1__NormsResponse *)parts.head;
    const sg_store_norms_sums sums = {.number = q->what.number,
                                      .group = q->what.group,
                                      .squares = response->squares,
                                      .variables = response->variables,
                                      .n_variables = response->n_variables};
    status = sg_store_norms_answer(q->norms->options.store, sg_clock_ms(), &sums, err);
    sg_wire_parts_deinit(&parts);
    return status;
}

/* On the client's thread. */
static void on_reply(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    question *q = user;
    q->status = status == SG_OK ? take(q, reply, &q->error) : status;
    if (status != SG_OK)
        q->error = *error;
    sg_mailbox_post(q->norms->options.mailbox, &q->done);
}

/* --- the question --- */

static void ask_now(sg_norms *n, question *q)
{
    const sg_norms_options *options = &n->options;
    uint64_t life;
    const char *address = sg_rpc_channel_address(sg_registrar_channel(*options->registrar, &life));
    if (!n->channel || strcmp(sg_rpc_channel_address(n->channel), address) != 0) {
        sg_rpc_channel_release(n->channel);
        n->channel = sg_rpc_client_channel(options->client, address);
    }
    q->channel = n->channel;
    Shardgrad__V1__NormsRequest request = SHARDGRAD__V1__NORMS_REQUEST__INIT;
    request.ps = options->ps;
    request.life = life;
    request.generation = q->what.generation;
    request.group = q->what.group;
    request.step = q->what.step;
    request.squares = q->what.squares;
    request.n_squares = q->what.n_squares;
    sg_wire_message *message;
    q->under_way = true;
    sg_status status = sg_wire_pack(sg_rpc_client_pool(options->client), &request.base, NULL, 0, &message, &q->error);
    if (status != SG_OK) {
        q->status = status;
        on_done(&q->done);
        return;
    }
    sg_rpc_pending_release(sg_rpc_channel_call(q->channel, "/shardgrad.v1.CoordinatorService/Norms", message,
                                               options->timeout_ms, on_reply, q));
}

static void on_posted(sg_mailbox_item *item)
{
    question *q = SG_CONTAINER_OF(item, question, posted);
    TAILQ_INSERT_TAIL(&q->norms->questions, q, link);
    if (q->norms->closed)
        end(q->norms, q);
    else
        ask_now(q->norms, q);
}

void sg_norms_ask(sg_norms *norms, const sg_store_norms *what)
{
    question *q = sg_xcalloc(1, sizeof *q);
    q->norms = norms;
    q->posted.run = on_posted;
    q->done.run = on_done;
    q->what = *what;
    q->what.squares = sg_xcalloc(what->n_squares, sizeof *what->squares);
    memcpy(q->what.squares, what->squares, what->n_squares * sizeof *what->squares);
    sg_mailbox_post(norms->options.mailbox, &q->posted);
}

void sg_norms_tick(sg_norms *norms, uint64_t now_ms)
{
    for (question *q = TAILQ_FIRST(&norms->questions), *next; q && !norms->closed; q = next) {
        next = TAILQ_NEXT(q, link);
        if (!q->under_way && now_ms >= q->next_ms)
            ask_now(norms, q);
    }
}

/* --- life --- */

sg_norms *sg_norms_create(const sg_norms_options *options)
{
    sg_norms *n = sg_xcalloc(1, sizeof *n);
    n->options = *options;
    TAILQ_INIT(&n->questions);
    return n;
}

void sg_norms_close(sg_norms *norms)
{
    norms->closed = true;
}

void sg_norms_destroy(sg_norms *norms)
{
    if (!norms)
        return;
    for (question *q = TAILQ_FIRST(&norms->questions), *next; q; q = next) {
        next = TAILQ_NEXT(q, link);
        question_free(q);
    }
    free(norms);
}
