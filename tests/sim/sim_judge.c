/* sim_judge.c - how a job must end, by what happened to it. */
#include "tests/sim/sim_worker.h"

#include <inttypes.h>
#include <string.h>

#include "common/status.h"

static uint32_t n_happened(const sim *s, const sim_fault **last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->scenario.n_faults; i++) {
        if (s->scenario.faults[i].happened) {
            n++;
            *last = &s->scenario.faults[i];
        }
    }
    return n;
}

static bool names(const char *text, const char *word, uint32_t number)
{
    char name[32];
    snprintf(name, sizeof name, "%s %" PRIu32, word, number);
    return strstr(text, name) != NULL;
}

/* One who comes when all others have left finds the job over, or nobody there; one may go on as another process. */
static bool ended_beside_it(const sim_worker *worker)
{
    bool too_late = !worker->joined &&
                    (worker->status == SG_STOPPED || worker->status == SG_UNAVAILABLE || worker->status == SG_TIMEOUT);
    return worker->came_again || too_late;
}

/* Without a fault everybody does its quota and the job ends well, whatever the network lost and repeated. */
static void judge_calm(sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (worker->status == SG_OK || ended_beside_it(worker))
            continue;
        sim_fail(s, "without a fault worker %" PRIu32 " ended with %s: %s", worker->index,
                 sg_status_name(worker->status), worker->text);
    }
    if (!s->job_ended || s->job_status != SG_OK)
        sim_fail(s, "without a fault the job ended with %s: %s",
                 s->job_ended ? sg_status_name(s->job_status) : "nothing", s->job_text);
    sim_save_judge(s);
    for (uint32_t i = 0; i < s->scenario.n_ps; i++) {
        if (!s->ps[i].ended || s->ps[i].status != SG_OK)
            sim_fail(s, "without a fault ps %" PRIu32 " ended with %s: %s", i, sg_status_name(s->ps[i].status),
                     s->ps[i].text);
    }
}

/* continue: the others do their quota. Where fewer than min_workers were left they wait for another worker and in the
 * end give up naming the lost one, unless they have nothing left to do; whoever asked for a ticket counts. */
static void judge_loss(sim *s, const sim_fault *fault)
{
    uint32_t n_gave_up = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (worker->killed || worker->status == SG_OK || ended_beside_it(worker))
            continue;
        n_gave_up++;
        if (!names(worker->text, "worker", fault->target) && !names(worker->text, "ps", 0))
            sim_fail(s, "worker %" PRIu32 " ended with %s and did not hear of worker %" PRIu32 ": %s", worker->index,
                     sg_status_name(worker->status), fault->target, worker->text);
    }
    bool waits = s->scenario.on_loss == SG_WORKER_LOSS_WAIT && !s->scenario.async;
    if (s->job_status == SG_OK ? n_gave_up > 0 : !waits && n_gave_up >= s->scenario.min_workers)
        sim_fail(s, "worker %" PRIu32 " was killed, %" PRIu32 " others gave up and the job ended with %s: %s",
                 fault->target, n_gave_up, sg_status_name(s->job_status), s->job_text);
    if (s->job_status != SG_OK && (s->job_status != SG_PEER_LOST || !names(s->job_text, "worker", fault->target)))
        sim_fail(s, "worker %" PRIu32 " was killed and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
}

/* wait: everybody does its quota if the lost one has come again, and the job names it if it has not. */
static void judge_awaited(sim *s, const sim_fault *fault)
{
    if (fault->revive_ms > 0 && s->job_status != SG_OK)
        sim_fail(s, "worker %" PRIu32 " came again and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
    if (fault->revive_ms == 0 && s->job_ended && s->job_status == SG_OK)
        sim_fail(s, "nobody waited for worker %" PRIu32 ", which was killed", fault->target);
    judge_loss(s, fault);
}

/* A worker that trained vanished: by on_worker_loss. abort: the job has failed, and said which, unless it came again
 * before it was missed. */
static void judge_killed_worker(sim *s, const sim_fault *fault)
{
    bool trained = fault->phase >= SIM_FETCHING && fault->phase < SIM_LEAVING;
    if (!trained)
        return;
    sg_worker_loss on_loss = s->scenario.on_loss;
    if (on_loss == SG_WORKER_LOSS_WAIT && !s->scenario.async)
        judge_awaited(s, fault);
    if (on_loss == SG_WORKER_LOSS_CONTINUE || (on_loss == SG_WORKER_LOSS_WAIT && s->scenario.async))
        judge_loss(s, fault);
    if (on_loss != SG_WORKER_LOSS_ABORT || (fault->revive_ms > 0 && s->job_status == SG_OK))
        return;
    if (s->job_status != SG_PEER_LOST || !names(s->job_text, "worker", fault->target))
        sim_fail(s, "worker %" PRIu32 " was killed while it trained and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (worker->killed || worker->status == SG_OK || ended_beside_it(worker) ||
            names(worker->text, "worker", fault->target) || names(worker->text, "ps", 0))
            continue;
        sim_fail(s, "worker %" PRIu32 " ended with %s and did not hear of worker %" PRIu32 ": %s", worker->index,
                 sg_status_name(worker->status), fault->target, worker->text);
    }
}

/* Another process has its place: it is told so, or was not before the job was over and hears that, or finds nobody
 * there.
 */
static bool has_lost_its_place(const sim *s, const sim_worker *worker)
{
    bool replaced = false;
    for (uint32_t i = 0; i < s->n_workers; i++)
        replaced |= i != worker->number && s->workers[i].index == worker->index && s->workers[i].status == SG_OK;
    return (worker->status == SG_FENCED && names(worker->text, "worker", worker->index)) ||
           (worker->status == SG_STOPPED && replaced && s->job_ended) ||
           (worker->status == SG_PEER_LOST && strstr(worker->text, "ps ") != NULL && replaced && s->job_ended);
}

/* The life whose hello came last goes on, the other one is told; nobody else notices. */
static void judge_superseded(sim *s, const sim_fault *fault)
{
    uint32_t n_fenced = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        n_fenced += worker->status == SG_FENCED;
        const bool is_past = worker->index == fault->target && has_lost_its_place(s, worker);
        if (worker->status == SG_OK || ended_beside_it(worker) || is_past)
            continue;
        sim_fail(s, "after worker %" PRIu32 " came anew process %" PRIu32 " (worker %" PRIu32 ") ended with %s: %s",
                 fault->target, i, worker->index, sg_status_name(worker->status), worker->text);
    }
    if (n_fenced > 1)
        sim_fail(s, "both lives of worker %" PRIu32 " were fenced", fault->target);
    if (s->job_status != SG_OK)
        sim_fail(s, "after worker %" PRIu32 " came anew the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
}

/* The job names it, or a worker that ended because of it. */
static void judge_killed_ps(sim *s, const sim_fault *fault)
{
    if (fault->target == 0 || s->job_status == SG_OK || names(s->job_text, "ps", fault->target))
        return;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (names(s->job_text, "worker", worker->index) && names(worker->text, "ps", fault->target))
            return;
    }
    sim_fail(s, "ps %" PRIu32 " was killed and the job ended with %s: %s", fault->target, sg_status_name(s->job_status),
             s->job_text);
}

/* It is as if it had started later, or, where variables were declared before it registered again, the job names it.
 * Where a late word of the old life fenced the new one, nobody comes in its place: ps 0 waits for one, and every worker
 * gives up naming it. */
static void judge_restarted_ps(sim *s, const sim_fault *fault)
{
    if (s->job_ended && s->job_status == SG_OK) {
        judge_calm(s);
    } else if (!s->job_ended) {
        uint32_t n_naming = 0;
        for (uint32_t i = 0; i < s->n_workers; i++)
            n_naming += names(s->workers[i].text, "ps", fault->target) ? 1 : 0;
        if (n_naming == 0)
            sim_fail(s, "ps %" PRIu32 " was started anew, the job waits, and no worker says for whom", fault->target);
    } else if (!names(s->job_text, "ps", fault->target)) {
        sim_fail(s, "ps %" PRIu32 " was started anew and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
    }
}

/* A ps had been told that the job is over and went, while ps 0 vanished on its way out: whoever starts ps 0 again finds
 * nobody. */
static bool was_over(const sim *s, const sim_fault *fault)
{
    for (uint32_t i = 1; i < s->scenario.n_ps; i++) {
        if (fault->target == 0 && s->ps[i].ended && s->ps[i].status == SG_OK)
            return true;
    }
    return false;
}

/* It is as if nothing had been: everybody does its quota, and the job ends well. One that had left, or was about to,
 * and whose last steps were lost with the ps, does not come again. */
static void judge_recovered(sim *s, const sim_fault *fault)
{
    if (s->config->on_worker_loss == SG_WORKER_LOSS_ABORT && s->job_status == SG_PEER_LOST &&
        strstr(s->job_text, "worker ") != NULL)
        return;
    /* A coordinator that was started anew does not know who has left. */
    if (fault->target == 0 && s->job_status == SG_PEER_LOST && strstr(s->job_text, "did not come again within") != NULL)
        return;
    if (was_over(s, fault))
        return;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        /* Where nobody's steps were saved it waits for as many as at first. */
        bool waited = fault->target == 0 && worker->status == SG_TIMEOUT &&
                      (strstr(worker->text, "waiting for worker ") != NULL || names(worker->text, "ps", 0));
        /* One who joined late and was let go on without: the job was over before it came again. */
        bool missed = s->job_ended && worker->status == SG_PEER_LOST && names(worker->text, "ps", 0);
        if (worker->status != SG_OK && !waited && !missed && !ended_beside_it(worker))
            sim_fail(s, "ps %" PRIu32 " was started anew and worker %" PRIu32 " ended with %s: %s", fault->target,
                     worker->index, sg_status_name(worker->status), worker->text);
    }
    if (s->job_ended && s->job_status != SG_OK)
        sim_fail(s, "ps %" PRIu32 " was started anew and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
}

/* It is as if nothing had been. Where nothing can be restored one that does not answer for a lease is taken for dead,
 * and ps 0 by others, too: judge_names sees that they say so. */
static void judge_paused_ps(sim *s, const sim_fault *fault)
{
    if (fault->again_ms < s->config->lease_ms / 2)
        judge_calm(s);
    else if (s->scenario.saves)
        judge_recovered(s, fault);
}

static void judge_stopped_ps(sim *s)
{
    if (s->job_ended && s->job_status != SG_OK)
        sim_fail(s, "a ps was told to stop and the job ended with %s: %s", sg_status_name(s->job_status), s->job_text);
}

/* A failure is a failure of somebody: no process ends, or goes on waiting, without a name. */
static void judge_names(sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        bool named = strstr(worker->text, "worker ") != NULL || strstr(worker->text, "ps ") != NULL ||
                     strstr(worker->text, "the job ") != NULL || !worker->joined;
        if (!worker->killed && worker->status != SG_OK && !named)
            sim_fail(s, "worker %" PRIu32 " failed with %s and named nobody: %s", worker->index,
                     sg_status_name(worker->status), worker->text);
    }
    if (s->job_ended && s->job_status != SG_OK && strstr(s->job_text, "worker ") == NULL &&
        strstr(s->job_text, "ps ") == NULL)
        sim_fail(s, "the job failed with %s and named nobody: %s", sg_status_name(s->job_status), s->job_text);
}

/* `wait`: one that went without an answer to its goodbye is lost to the others, and does not come again. */
static bool waits_for_one_that_went(const sim *s)
{
    bool found = false;
    for (uint32_t i = 0; i < s->n_workers; i++)
        found |= s->workers[i].status == SG_OK && s->workers[i].leave_status != SG_OK &&
                 names(s->job_text, "worker", s->workers[i].index);
    return found && s->config->on_worker_loss == SG_WORKER_LOSS_WAIT && s->job_status == SG_PEER_LOST;
}

void sim_judge(sim *s)
{
    const sim_fault *fault = NULL;
    uint32_t n = n_happened(s, &fault);
    judge_names(s);
    sim_change_judge(s);
    sim_ask_judge(s);
    if (waits_for_one_that_went(s))
        return;
    if (n == 0) {
        judge_calm(s);
        return;
    }
    if (n > 1 || s->n_changed > 0) /* a fault in another mode, or before it */
        return;
    switch (fault->kind) {
    case SIM_FAULT_KILL_WORKER:
        judge_killed_worker(s, fault);
        break;
    case SIM_FAULT_SUPERSEDE:
        judge_superseded(s, fault);
        break;
    case SIM_FAULT_KILL_PS:
        judge_killed_ps(s, fault);
        break;
    case SIM_FAULT_STOP_PS:
        judge_stopped_ps(s);
        break;
    case SIM_FAULT_RESTART_PS:
        judge_restarted_ps(s, fault);
        break;
    case SIM_FAULT_RECOVER_PS:
        judge_recovered(s, fault);
        break;
    case SIM_FAULT_PAUSE_PS:
        judge_paused_ps(s, fault);
        break;
    case SIM_N_FAULTS:
        break;
    }
}
