/* server/coordinator_save_ask.c - who asks for a checkpoint: which one it gets, and its answer; and what people are
 * told of those under way. */
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

static bool may_save(const sg_coordinator *c)
{
    return sg_coordinator_is_at_work(c) && c->save.complete;
}

/* NULL: this request was not made before, or so long ago that it is forgotten. */
static const sg_coordinator_save_ask *find_ask(const sg_coordinator *c, uint64_t id)
{
    for (size_t i = 0; i < SG_COORDINATOR_SAVE_ASKS; i++) {
        if (c->save.asks[i].id == id)
            return &c->save.asks[i];
    }
    return NULL;
}

/* Which one the request gets: the same one again, if it was made before. 0: the newest complete one. */
static uint64_t number_for(sg_coordinator *c, uint64_t id)
{
    sg_coordinator_save *save = &c->save;
    const sg_coordinator_save_ask *before = find_ask(c, id);
    if (before != NULL)
        return before->number;
    sg_coordinator_save_ask *ask = &save->asks[save->n_asks++ % SG_COORDINATOR_SAVE_ASKS];
    bool begun = save->phase == SG_COORDINATOR_SAVE_CUT || save->phase == SG_COORDINATOR_SAVE_WRITING ||
                 (save->phase == SG_COORDINATOR_SAVE_MARKED && save->n_known > 0);
    *ask = (sg_coordinator_save_ask){.id = id};
    if (!begun && sg_coordinator_save_is_up_to_date(c))
        return 0;
    ask->number = save->number;
    if (save->phase == SG_COORDINATOR_SAVE_MARKED && !begun) {
        sg_coordinator_save_hurry(c);
    } else {
        save->again = true;
        ask->number++;
    }
    return ask->number;
}

bool sg_coordinator_save_number_later(sg_coordinator *c)
{
    bool moved = false;
    sg_coordinator_parked *call;
    TAILQ_FOREACH(call, &c->parked, link)
    {
        if (call->kind != SG_COORDINATOR_PARKED_SAVE || call->save != SG_COORDINATOR_SAVE_LATER || !may_save(c))
            continue;
        call->save = number_for(c, call->save_id);
        moved = true;
    }
    return moved;
}

void sg_coordinator_save_ask_for(sg_coordinator *c, const Shardgrad__V1__SaveRequest *request, void *call)
{
    if (!sg_coordinator_is_meant(c, call, request->job))
        return;
    if (c->over && find_ask(c, request->id) == NULL)
        sg_coordinator_end_answer(c, call, c->n_workers);
    else if (!sg_coordinator_save_due(c))
        sg_coordinator_fail(c, call, SG_CONFIG,
                            "this job makes no checkpoints: set checkpoint.dir where ps 0 is started");
    else if (request->id == 0)
        sg_coordinator_fail(c, call, SG_INVALID, "save gave id 0, wanted a random number");
    else if (!c->over && !may_save(c) && !sg_coordinator_generation_recovers(c) && !sg_coordinator_change_under_way(c))
        sg_coordinator_fail(c, call, SG_NOT_READY, "training has not begun: there is nothing to save yet");
    else
        sg_coordinator_park(c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_SAVE,
                                                        .call = call,
                                                        .worker = c->n_workers,
                                                        .save = c->over || may_save(c) ? number_for(c, request->id)
                                                                                       : SG_COORDINATOR_SAVE_LATER,
                                                        .save_id = request->id});
}

/* Of the checkpoint that the call waited for; NULL: it is not remembered. */
static const sg_coordinator_save_result *find_result(const sg_coordinator_save *save, const sg_coordinator_parked *call)
{
    for (size_t i = 0; i < SG_COORDINATOR_SAVE_ASKS; i++) {
        const sg_coordinator_save_ask *ask = &save->asks[i];
        if (ask->id == call->save_id && ask->result.number == call->save)
            return &ask->result;
    }
    const sg_coordinator_save_result *result = &save->results[call->save % SG_COORDINATOR_SAVE_RESULTS];
    return result->number == call->save ? result : NULL;
}

/* It is decided what the call gets: the checkpoint that it waited for has come to an end. */
static bool is_decided(const sg_coordinator *c, const sg_coordinator_parked *call)
{
    const sg_coordinator_save *save = &c->save;
    if (call->save == SG_COORDINATOR_SAVE_LATER || call->save > save->number)
        return false;
    return call->save < save->number || save->phase == SG_COORDINATOR_SAVE_IDLE;
}

bool sg_coordinator_save_answer(sg_coordinator *c, const sg_coordinator_parked *call)
{
    const sg_coordinator_save *save = &c->save;
    const bool decided = is_decided(c, call);
    const bool gets_newest = call->save == 0 || (!decided && c->over && sg_coordinator_save_is_up_to_date(c));
    if (!decided && !c->over)
        return false;
    const sg_coordinator_save_result newest = {.set = sg_coordinator_save_newest(c)}, *result = NULL;
    if (gets_newest)
        result = &newest;
    else if (decided)
        result = find_result(save, call);
    if (result == NULL && c->over) {
        sg_coordinator_end_answer(c, call->call, c->n_workers);
    } else if (result == NULL) {
        sg_coordinator_fail(c, call->call, SG_LATE,
                            "what became of checkpoint %" PRIu64 " is not remembered any more: ask for another",
                            call->save);
    } else if (result->status != SG_OK) {
        sg_coordinator_fail(c, call->call, result->status, "%s", result->message);
    } else {
        Shardgrad__V1__SaveResponse response = SHARDGRAD__V1__SAVE_RESPONSE__INIT;
        response.iteration = result->set.iteration;
        response.generation = result->set.generation;
        sg_coordinator_reply(c, call->call, &response.base);
    }
    return true;
}

/* --- for people ------------------------------------------------------------------------------------------------- */

const char *sg_coordinator_save_waits_for(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    uint32_t ps = 0, group = 0;
    switch (c->save.phase) {
    case SG_COORDINATOR_SAVE_MARKED:
        while (group + 1 < c->n_groups && c->save.known[group])
            group++;
        snprintf(out, SG_ERROR_MESSAGE_BYTES,
                 "waiting for a worker to ask for iteration %" PRIu64 " (group %" PRIu32 "), where a checkpoint is cut",
                 c->save.mark, group);
        break;
    case SG_COORDINATOR_SAVE_CUT:
        while (ps + 1 < c->n_ps && c->ps[ps].saved.reported)
            ps++;
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s to write its part of checkpoint %" PRIu64,
                 sg_coordinator_ps_name(c, ps, name), c->save.mark);
        break;
    default:
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for ps 0 to complete checkpoint %" PRIu64, c->save.mark);
        break;
    }
    return out;
}

void sg_coordinator_save_status(const sg_coordinator *c, Shardgrad__V1__CheckpointStatus *out)
{
    const sg_coordinator_save *save = &c->save;
    *out = (Shardgrad__V1__CheckpointStatus)SHARDGRAD__V1__CHECKPOINT_STATUS__INIT;
    out->complete = save->complete;
    out->iteration = save->iteration;
    out->age_ms = save->complete ? c->now_ms - save->complete_ms : 0;
    out->failure = save->failed ? (char *)save->failure : (char *)"";
    out->failure_age_ms = save->failed ? c->now_ms - save->failed_ms : 0;
    out->under_way = save->phase == SG_COORDINATOR_SAVE_CUT || save->phase == SG_COORDINATOR_SAVE_WRITING;
    out->mark = save->mark;
}
