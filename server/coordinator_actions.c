/* server/coordinator_actions.c - what the coordinator wants done, as a queue; and the calls that wait. */
#include <stdlib.h>

#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"

/* A worker has a few calls under way; what is above this comes from someone who floods. */
#define PARKED_PER_WORKER 16u
/* A ps has one call about the norms of a group under way, and perhaps one that was lost on the way. */
#define NORMS_PER_GROUP 2u

static sg_coordinator_action *enqueue(sg_coordinator *c, sg_coordinator_action_kind kind)
{
    sg_coordinator_queued *queued = sg_pool_alloc(c->pool, sizeof *queued);
    queued->action.kind = kind;
    STAILQ_INSERT_TAIL(&c->actions, queued, link);
    return &queued->action;
}

static char *format_line(const char *format, va_list args) SG_PRINTF(1, 0);

static char *format_line(const char *format, va_list args)
{
    sg_error line;
    sg_status ignored = sg_error_set_v(&line, SG_INTERNAL, format, args);
    (void)ignored;
    return sg_xstrdup(line.message);
}

void sg_coordinator_reply(sg_coordinator *c, void *call, const ProtobufCMessage *body)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_REPLY);
    action->call = call;
    action->body = sg_wire_head_copy_to_pool(c->pool, body);
}

void sg_coordinator_fail(sg_coordinator *c, void *call, sg_status status, const char *format, ...)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_FAIL);
    action->call = call;
    action->status = status;
    va_list args;
    va_start(args, format);
    action->text = format_line(format, args);
    va_end(args);
}

void sg_coordinator_fail_error(sg_coordinator *c, void *call, const sg_error *error)
{
    sg_coordinator_fail(c, call, error->code, "%s", error->message);
}

void sg_coordinator_log(sg_coordinator *c, sg_log_level level, const char *event, const char *format, ...)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_LOG);
    action->level = level;
    action->event = event;
    va_list args;
    va_start(args, format);
    action->text = format_line(format, args);
    va_end(args);
}

void sg_coordinator_send(sg_coordinator *c, uint32_t ps, ProtobufCMessage *take_body)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_ORDER);
    action->body = take_body;
    action->ps = ps;
    action->life = c->ps[ps].life;
    action->address = sg_xstrdup(c->ps[ps].address);
}

void sg_coordinator_save_set(sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_SAVE);
    action->manifest = sg_xcalloc(1, sizeof *action->manifest);
    sg_checkpoint_manifest_copy(action->manifest, manifest);
    action->current = c->save.current;
}

void sg_coordinator_record(sg_coordinator *c, uint64_t above)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_RECORD);
    action->generation = above;
    action->own = c->generation;
    action->damaged = c->damaged;
    const sg_coordinator_hyper *hyper = sg_coordinator_change_target(c);
    action->changes = sg_checkpoint_changes_copy(hyper->changes, hyper->n_changes);
    action->n_changes = hyper->n_changes;
}

void sg_coordinator_exit(sg_coordinator *c, sg_status status, const char *text)
{
    sg_coordinator_action *action = enqueue(c, SG_COORDINATOR_END);
    action->status = status;
    action->text = sg_xstrdup(text);
}

bool sg_coordinator_next_action(sg_coordinator *c, sg_coordinator_action *action)
{
    sg_coordinator_queued *queued = STAILQ_FIRST(&c->actions);
    if (queued == NULL)
        return false;
    STAILQ_REMOVE_HEAD(&c->actions, link);
    *action = queued->action;
    sg_pool_free(queued);
    return true;
}

void sg_coordinator_action_deinit(sg_coordinator_action *action)
{
    sg_wire_head_free(action->body);
    free(action->address);
    free(action->text);
    if (action->manifest != NULL)
        sg_checkpoint_manifest_deinit(action->manifest);
    free(action->manifest);
    sg_checkpoint_changes_free(action->changes, action->n_changes);
    *action = (sg_coordinator_action){0};
}

/* Each worker has places of its own: who floods takes none of another's. So have the ps, and people. */
static uint32_t *count_of(sg_coordinator *c, const sg_coordinator_parked *call, uint32_t *most)
{
    switch (call->kind) {
    case SG_COORDINATOR_PARKED_NORMS:
        *most = NORMS_PER_GROUP * c->n_groups * c->n_ps;
        return &c->n_parked_norms;
    case SG_COORDINATOR_PARKED_SAVE:
    case SG_COORDINATOR_PARKED_SET:
        *most = PARKED_PER_WORKER * c->n_workers;
        return &c->n_parked;
    case SG_COORDINATOR_PARKED_HELLO:
    case SG_COORDINATOR_PARKED_DECLARE:
    case SG_COORDINATOR_PARKED_INITIALIZED:
    case SG_COORDINATOR_PARKED_TICKET:
        break;
    }
    *most = PARKED_PER_WORKER;
    return &c->workers[call->worker].n_parked;
}

void sg_coordinator_park(sg_coordinator *c, const sg_coordinator_parked *call)
{
    uint32_t most, *n_parked = count_of(c, call, &most);
    if (*n_parked >= most) {
        sg_coordinator_fail(c, call->call, SG_WAITING, "too many calls wait (%" PRIu32 "): ask again", *n_parked);
        return;
    }
    sg_coordinator_parked *parked = sg_pool_alloc(c->pool, sizeof *parked);
    *parked = *call;
    parked->until_ms = c->now_ms + c->config->park_ms;
    TAILQ_INSERT_TAIL(&c->parked, parked, link);
    ++*n_parked;
}

void sg_coordinator_unpark(sg_coordinator *c, sg_coordinator_parked *call)
{
    TAILQ_REMOVE(&c->parked, call, link);
    uint32_t most;
    --*count_of(c, call, &most);
    sg_pool_free(call);
}

void sg_coordinator_forget(sg_coordinator *c, void *call)
{
    sg_coordinator_parked *parked = TAILQ_FIRST(&c->parked);
    while (parked != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(parked, link);
        if (parked->call == call)
            sg_coordinator_unpark(c, parked);
        parked = next;
    }
}
