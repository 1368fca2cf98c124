/* server/coordinator_save.c - checkpoints: where one is cut, whether all parts of it are written, and what becomes of
 * it.
 *
 * A mark K lies above every iteration handed out. Sync: the first step of each group with an iteration of at least K
 * carries it; once every group has one, or will have none, every ps is ordered to keep what is before those steps.
 * Async: every ps keeps what it has. Each reports with its registration when its part is written; then the manifest is,
 * which makes the checkpoint complete. One at a time: the next mark is set when the last one has come to its end. */
#include "server/coordinator_save.h"
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"

/* A group of which no step came by when another is so many iterations beyond the mark gets none: it is seldom stepped,
 * or not any more. Workers hold at most two tickets of a group, so that groups cannot be so far out of order. */
#define LAG_ITERATIONS 16u

bool sg_coordinator_save_due(const sg_coordinator *c)
{
    return c->config->checkpoint.dir[0] != '\0';
}

bool sg_coordinator_save_may_start(const sg_coordinator *c)
{
    return !sg_coordinator_save_due(c) || c->save.complete;
}

/* --- a generation begins ------------------------------------------------------------------------------------------ */

void sg_coordinator_save_restart(sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    sg_coordinator_save *save = &c->save;
    save->phase = SG_COORDINATOR_SAVE_IDLE;
    save->again = save->failed = false;
    save->complete = manifest != NULL;
    save->stored = manifest != NULL && sg_coordinator_hyper_is_in(c, manifest) ? c->in_force : 0;
    sg_coordinator_save_deinit(c);
    save->current = manifest != NULL ? manifest->set : (sg_checkpoint_set){0};
    save->mark = save->tried = save->iteration = save->current.iteration;
    save->complete_ms = c->now_ms;
    save->free_ticket_mark = manifest != NULL ? 1 : 0; /* it goes on beside the next cut, perhaps of iteration 0 */
    sg_coordinator_news_restart(c);
    memset(save->asks, 0, sizeof save->asks); /* what they were promised has come to nothing */
    for (uint32_t group = 0; group < SG_COORDINATOR_MAX_GROUPS; group++)
        c->groups[group].mark = 0;
    c->drain = (sg_coordinator_drain){0};
}

void sg_coordinator_save_deinit(sg_coordinator *c)
{
    sg_checkpoint_manifest_deinit(&c->save.writing);
    sg_checkpoint_manifest_deinit(&c->save.newest);
}

/* --- marks ------------------------------------------------------------------------------------------------------ */

static void begin(sg_coordinator *c, uint64_t mark, bool urgent)
{
    sg_coordinator_save *save = &c->save;
    save->urgent = urgent;
    save->phase = SG_COORDINATOR_SAVE_MARKED;
    save->number++;
    save->mark = mark;
    save->again = false;
    save->n_known = 0;
    memset(save->known, 0, sizeof save->known);
    for (uint32_t i = 0; i < c->n_ps; i++)
        c->ps[i].saved.reported = false;
}

/* One that failed may be cut again at the same iteration. Its steps carry another mark all the same, because slices
 * keep nothing when they meet one that they have met before. */
static void know(sg_coordinator *c, uint32_t group, uint64_t step)
{
    sg_coordinator_save *save = &c->save;
    if (save->n_known == 0) {
        save->ticket_mark = save->mark > save->free_ticket_mark ? save->mark : save->free_ticket_mark;
        save->free_ticket_mark = save->ticket_mark + 1;
    }
    save->known[group] = true;
    save->steps[group] = step;
    save->n_known++;
    c->groups[group].mark = save->ticket_mark;
}

/* Steps that were handed out are pushed, as long as somebody is there; else only some of them were. */
uint64_t sg_coordinator_save_end_iteration(const sg_coordinator *c)
{
    uint64_t end = c->save.iteration;
    if (sg_coordinator_is_async(c))
        return sg_coordinator_news_free_name(c);
    if (sg_coordinator_losses_any_member(c))
        return c->frozen;
    for (uint32_t i = 0; i < c->n_groups; i++) {
        const sg_coordinator_group *group = &c->groups[i];
        if (group->pushed > 0 && group->pushed_iteration >= end)
            end = group->pushed_iteration + 1;
    }
    return end;
}

static uint64_t end_step(const sg_coordinator *c, const sg_coordinator_group *group)
{
    if (sg_coordinator_is_async(c) || sg_coordinator_losses_any_member(c) || !group->opened)
        return group->next_step;
    return group->pushed > 0 ? group->pushed : group->first;
}

/* What was set for later is cut now. */
static void bring_forward(sg_coordinator *c)
{
    if (c->save.n_known == 0 && c->save.mark > sg_coordinator_save_end_iteration(c))
        c->save.mark = sg_coordinator_save_end_iteration(c);
}

/* No step that is still to be pushed is in it. */
static void know_all(sg_coordinator *c)
{
    bring_forward(c);
    for (uint32_t group = 0; group < c->n_groups; group++) {
        if (!c->save.known[group])
            know(c, group, end_step(c, &c->groups[group]));
    }
}

uint64_t sg_coordinator_save_mark(sg_coordinator *c, uint32_t group, uint64_t step, uint64_t iteration)
{
    sg_coordinator_save *save = &c->save;
    if (save->phase == SG_COORDINATOR_SAVE_MARKED && !sg_coordinator_is_async(c) && iteration >= save->mark) {
        if (!save->known[group])
            know(c, group, step);
        if (iteration >= save->mark + LAG_ITERATIONS)
            know_all(c);
    }
    return c->groups[group].mark;
}

/* A multiple of `every`, above all that was handed out and above the newest. */
static uint64_t next_periodic(const sg_coordinator *c)
{
    uint64_t every = c->config->checkpoint.every;
    uint64_t least = c->frozen > c->save.tried ? c->frozen : c->save.tried + 1;
    return (least + every - 1) / every * every;
}

static bool has_all_steps(const sg_coordinator *c)
{
    if (sg_coordinator_is_async(c)) /* tickets beyond the last step are handed out, too */
        return c->save.complete && !sg_coordinator_news_any(c, false) && !sg_coordinator_news_gave_back(c);
    return c->save.complete && c->save.iteration == sg_coordinator_save_end_iteration(c);
}

bool sg_coordinator_save_is_up_to_date(const sg_coordinator *c)
{
    return has_all_steps(c) && c->save.stored == c->in_force;
}

bool sg_coordinator_save_lacks(const sg_coordinator *c)
{
    if (!sg_coordinator_is_async(c) || !c->save.complete || c->save.stored != c->in_force)
        return !sg_coordinator_save_is_up_to_date(c);
    return sg_coordinator_news_any(c, true);
}

/* Something was set since, and nothing trained; and it was cut in this generation, so that another cut would have its
 * name. */
static bool lacks_only_hyper(const sg_coordinator *c)
{
    const sg_checkpoint_set set = c->save.newest.set;
    return has_all_steps(c) && c->save.stored != c->in_force && set.generation == c->generation &&
           set.iteration == c->save.iteration;
}

/* Its parts stay as they are: only the manifest is replaced, by one that has the hyper-parameters of now. */
static void write_again(sg_coordinator *c)
{
    sg_coordinator_save *save = &c->save;
    save->phase = SG_COORDINATOR_SAVE_WRITING;
    save->mark = save->iteration;
    save->began_ms = c->now_ms;
    save->hyper = c->in_force;
    sg_coordinator_write_manifest_again(c);
}

void sg_coordinator_save_hurry(sg_coordinator *c)
{
    if (lacks_only_hyper(c)) {
        write_again(c);
        return;
    }
    bring_forward(c);
    c->save.urgent = true;
}

sg_checkpoint_set sg_coordinator_save_newest(const sg_coordinator *c)
{
    const uint64_t own = c->save.newest.set.generation;
    return (sg_checkpoint_set){.iteration = c->save.iteration,
                               .generation = own != 0 ? own : c->save.current.generation};
}

/* set: that has what was asked for. */
static void note_result(sg_coordinator *c, sg_checkpoint_set set, sg_status status, const char *message)
{
    sg_coordinator_save *save = &c->save;
    sg_coordinator_save_result *result = &save->results[save->number % SG_COORDINATOR_SAVE_RESULTS];
    *result = (sg_coordinator_save_result){.number = save->number, .status = status, .set = set};
    snprintf(result->message, sizeof result->message, "%s", message);
    for (size_t i = 0; i < SG_COORDINATOR_SAVE_ASKS; i++) {
        if (save->asks[i].number == save->number)
            save->asks[i].result = *result;
    }
    save->phase = SG_COORDINATOR_SAVE_IDLE;
}

/* Sets a mark where one is wanted. */
static bool begin_next(sg_coordinator *c)
{
    sg_coordinator_save *save = &c->save;
    if (!save->complete || save->again || c->drain.on || sg_coordinator_change_saves(c)) {
        bool wanted = !sg_coordinator_save_is_up_to_date(c), asked = save->again;
        save->again = false;
        if (wanted && lacks_only_hyper(c)) {
            save->number++;
            write_again(c);
        } else if (wanted) {
            begin(c, sg_coordinator_save_end_iteration(c), true);
        } else if (asked) { /* while another was being made: the newest that is complete has all that there is */
            save->number++;
            note_result(c, sg_coordinator_save_newest(c), SG_OK, "");
        }
        return wanted || asked;
    }
    if (c->config->checkpoint.every == 0 || !c->started || !sg_coordinator_losses_any_member(c))
        return false;
    begin(c, next_periodic(c), false);
    return true;
}

/* --- the cut ---------------------------------------------------------------------------------------------------- */

static void order_cut(sg_coordinator *c)
{
    Shardgrad__V1__Cut cut = SHARDGRAD__V1__CUT__INIT;
    cut.mark = c->save.mark;
    cut.steps = c->save.steps;
    cut.n_steps = sg_coordinator_is_async(c) ? 0 : c->n_groups;
    cut.number = c->save.number;
    cut.ticket_mark = c->save.ticket_mark;
    cut.urgent = c->save.hurried = c->save.urgent || c->drain.on;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT;
    order.cut = &cut;
    sg_coordinator_order_all(c, &order.base);
}

/* One that is written in peace is waited for now: by who wants the next one, the end of the job, or a change. */
static void hurry_ps(sg_coordinator *c)
{
    if (c->save.hurried || !(c->save.again || c->drain.on || sg_coordinator_change_halts(c)))
        return;
    Shardgrad__V1__Hurry hurry = SHARDGRAD__V1__HURRY__INIT;
    hurry.number = c->save.number;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HURRY;
    order.hurry = &hurry;
    sg_coordinator_order_all(c, &order.base);
    c->save.hurried = true;
}

static void note_members(sg_coordinator *c)
{
    const sg_coordinator_iteration *newest = TAILQ_LAST(&c->iterations, sg_coordinator_iterations);
    c->save.members = (sg_workers){0};
    sg_workers joined = {0};
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (c->workers[i].member)
            sg_workers_add(&c->save.members, i);
        if (c->workers[i].state == SG_COORDINATOR_WORKER_JOINED)
            sg_workers_add(&joined, i);
    }
    if (sg_workers_is_empty(&c->save.members) && !c->started) /* all that it begins with are awaited */
        c->save.members = c->awaited;
    if (sg_workers_is_empty(&c->save.members) && c->started) /* none is now, and these are about to be */
        c->save.members = joined;
    if (sg_workers_is_empty(&c->save.members) && newest != NULL) /* all have left */
        c->save.members = newest->members;
}

/* Nobody will push a step that was not handed out. */
static bool nobody_goes_on(const sg_coordinator *c)
{
    return !c->started || !sg_coordinator_losses_any_member(c) || c->drain.on || sg_coordinator_change_saves(c);
}

/* Is everything known that the order says? Async: at the mark, if anything was finished since the newest one. */
static bool can_cut(sg_coordinator *c)
{
    bool now = nobody_goes_on(c);
    if (sg_coordinator_is_async(c)) {
        now = now || c->save.urgent || (c->frozen >= c->save.mark && sg_coordinator_news_any(c, true));
        c->save.mark = now ? sg_coordinator_news_free_name(c) : c->save.mark;
    }
    if (now)
        know_all(c);
    return c->save.n_known >= c->n_groups;
}

static bool cut(sg_coordinator *c)
{
    sg_coordinator_save *save = &c->save;
    if (sg_coordinator_drain_waits(c))
        return false;
    if (c->drain.on)
        sg_coordinator_drain_close(c);
    if (nobody_goes_on(c) && save->mark > sg_coordinator_save_end_iteration(c)) { /* it was meant for later */
        memset(save->known, 0, sizeof save->known);
        save->n_known = 0;
    }
    if (save->n_known == 0 && nobody_goes_on(c) && sg_coordinator_save_is_up_to_date(c)) {
        note_result(c, sg_coordinator_save_newest(c), SG_OK, ""); /* whoever asked for it has it */
        return true;
    }
    if (save->n_known == 0 && nobody_goes_on(c) && lacks_only_hyper(c)) {
        write_again(c);
        return true;
    }
    if (!can_cut(c))
        return false;
    for (uint32_t group = 0; group < c->n_groups && sg_coordinator_is_async(c); group++)
        save->steps[group] = sg_coordinator_news_next_step(c, group); /* for the manifest: tickets handed out */
    save->next_iteration = sg_coordinator_is_async(c) ? sg_coordinator_news_next_iteration(c) : save->mark;
    save->phase = SG_COORDINATOR_SAVE_CUT;
    save->began_ms = c->now_ms;
    save->tried = save->mark;
    sg_coordinator_news_note_cut(c);
    note_members(c);
    save->hyper = c->in_force;
    order_cut(c);
    sg_coordinator_log(c, SG_LOG_DEBUG, "checkpoint_cut", "iteration=%" PRIu64 " step=%" PRIu64, save->mark,
                       save->steps[0]);
    return true;
}

/* --- its end ---------------------------------------------------------------------------------------------------- */

static void fail(sg_coordinator *c, sg_status status, const char *message)
{
    sg_coordinator_save *save = &c->save;
    char quoted[2 * SG_ERROR_MESSAGE_BYTES];
    sg_checkpoint_manifest_deinit(&save->writing);
    note_result(c, (sg_checkpoint_set){0}, status, message);
    save->failed = true;
    save->failed_ms = c->now_ms;
    snprintf(save->failure, sizeof save->failure, "%s", message);
    sg_coordinator_log(c, SG_LOG_ERROR, "checkpoint_failed", "iteration=%" PRIu64 " status=%s reason=%s", save->mark,
                       sg_status_name(status), sg_log_quote(message, quoted, sizeof quoted));
    save->complete = save->complete || save->current.generation != 0; /* what this generation started from */
    sg_coordinator_change_saved(c, status, message);
    if (!save->complete)
        sg_coordinator_end_fail(c, status,
                                "the checkpoint of the initial values could not be made, and training does not start "
                                "without: %s; see to checkpoint.dir, or leave it empty",
                                message);
}

static void succeed(sg_coordinator *c)
{
    sg_coordinator_save *save = &c->save;
    note_result(c, save->writing.set, SG_OK, "");
    save->complete = true;
    save->failed = false;
    save->iteration = save->mark;
    sg_coordinator_news_note_complete(c);
    save->stored = save->hyper;
    sg_checkpoint_manifest_deinit(&save->newest);
    save->newest = save->writing;
    save->writing = (sg_checkpoint_manifest){0};
    save->complete_ms = c->now_ms;
    sg_coordinator_change_saved(c, SG_OK, "");
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < save->newest.n_parts; i++)
        n_bytes += save->newest.parts[i].n_bytes;
    sg_coordinator_log(c, SG_LOG_INFO, "checkpoint", "iteration=%" PRIu64 " bytes=%" PRIu64 " ms=%" PRIu64, save->mark,
                       n_bytes, c->now_ms - save->began_ms);
}

void sg_coordinator_save_written(sg_coordinator *c, uint64_t mark, sg_status status, const char *message)
{
    if (c->save.phase != SG_COORDINATOR_SAVE_WRITING || c->save.mark != mark)
        return;
    if (status == SG_OK)
        succeed(c);
    else
        fail(c, status, message);
}

static bool take_reports(sg_coordinator *c)
{
    sg_error err;
    if (!sg_coordinator_reports_all(c))
        return false;
    sg_status status = sg_coordinator_reports_check(c, &err);
    if (status != SG_OK) {
        fail(c, status, err.message);
        return true;
    }
    c->save.phase = SG_COORDINATOR_SAVE_WRITING;
    sg_coordinator_write_manifest(c);
    return true;
}

/* --- its steps ---------------------------------------------------------------------------------------------------- */

bool sg_coordinator_save_advance(sg_coordinator *c)
{
    if (!sg_coordinator_save_due(c) || !sg_coordinator_is_at_work(c))
        return false;
    if (sg_coordinator_drain_call_off(c) || sg_coordinator_save_number_later(c))
        return true;
    switch (c->save.phase) {
    case SG_COORDINATOR_SAVE_IDLE:
        if (c->drain.on && sg_coordinator_drain_advance(c))
            return true;
        c->drain.tried = c->drain.on;
        return begin_next(c);
    case SG_COORDINATOR_SAVE_MARKED:
        return cut(c);
    case SG_COORDINATOR_SAVE_CUT:
        if (take_reports(c))
            return true;
        hurry_ps(c);
        break;
    case SG_COORDINATOR_SAVE_WRITING:
        break;
    }
    return c->drain.on && sg_coordinator_drain_advance(c);
}
