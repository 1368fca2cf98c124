/* server/coordinator_status.c - the status message. */
#include <stdlib.h>

#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

static uint64_t age_ms(const sg_coordinator *c, uint64_t heard_ms)
{
    return c->now_ms > heard_ms ? c->now_ms - heard_ms : 0;
}

static void fill_ps(const sg_coordinator *c, uint32_t index, Shardgrad__V1__PsStatus *out)
{
    static const char *const states[] = {
        [SG_COORDINATOR_PS_WAITING] = "waiting",
        [SG_COORDINATOR_PS_UP] = "up",
        [SG_COORDINATOR_PS_STOPPING] = "stopping",
        [SG_COORDINATOR_PS_LOST] = "lost",
    };
    const sg_coordinator_ps *ps = &c->ps[index];
    *out = (Shardgrad__V1__PsStatus)SHARDGRAD__V1__PS_STATUS__INIT;
    out->ps = index;
    out->address = ps->address;
    out->state = (char *)states[ps->state];
    out->lease_age_ms = ps->state == SG_COORDINATOR_PS_WAITING ? 0 : age_ms(c, ps->heard_ms);
    out->report = ps->report;
}

static void fill_worker(const sg_coordinator *c, uint32_t index, Shardgrad__V1__WorkerStatus *out)
{
    static const char *const states[] = {
        [SG_COORDINATOR_WORKER_WAITING] = "waiting", [SG_COORDINATOR_WORKER_HELLO] = "waiting",
        [SG_COORDINATOR_WORKER_JOINED] = "joined",   [SG_COORDINATOR_WORKER_LEFT] = "left",
        [SG_COORDINATOR_WORKER_LOST] = "lost",
    };
    const sg_coordinator_worker *worker = &c->workers[index];
    *out = (Shardgrad__V1__WorkerStatus)SHARDGRAD__V1__WORKER_STATUS__INIT;
    out->worker = index;
    out->address = worker->address;
    out->state =
        (char *)(worker->member && worker->state == SG_COORDINATOR_WORKER_JOINED ? "training" : states[worker->state]);
    out->lease_age_ms = worker->life == 0 ? 0 : age_ms(c, worker->heard_ms);
    out->incarnation = worker->incarnation;
    out->finished = worker->groups == NULL ? 0 : worker->groups[0].finished;
    out->loss = worker->loss;
    out->examples = worker->examples;
    out->late = worker->late;
    if (c->config->update.mode == SG_MODE_SSP && worker->groups != NULL)
        out->clock = sg_coordinator_clocks_of(&worker->groups[0]);
}

/* That came or is awaited. */
static bool is_listed(const sg_coordinator *c, uint32_t index)
{
    return c->workers[index].life != 0 || sg_coordinator_waits_awaits(c, index);
}

static float mean_loss(const sg_coordinator *c)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (c->workers[i].examples > 0) {
            sum += (double)c->workers[i].loss;
            n++;
        }
    }
    return n == 0 ? 0 : (float)(sum / n);
}

/* Over all ps: theirs are as long as each other. NULL: none has any. */
static uint64_t *sum_staleness(const sg_coordinator *c, size_t *n)
{
    uint64_t *sums = NULL;
    *n = 0;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        const Shardgrad__V1__PsReport *report = c->ps[i].report;
        if (report == NULL || report->n_staleness == 0 || (sums != NULL && report->n_staleness != *n))
            continue;
        *n = report->n_staleness;
        if (sums == NULL)
            sums = sg_xcalloc(*n, sizeof *sums);
        for (size_t k = 0; k < *n; k++)
            sums[k] += report->staleness[k];
    }
    return sums;
}

void sg_coordinator_status_answer(sg_coordinator *c, void *call)
{
    char waiting_for[SG_ERROR_MESSAGE_BYTES];
    Shardgrad__V1__StatusResponse response = SHARDGRAD__V1__STATUS_RESPONSE__INIT;
    Shardgrad__V1__PsStatus *ps = sg_xcalloc(c->n_ps, sizeof *ps),
                            **ps_list = sg_xcalloc(c->n_ps, sizeof(Shardgrad__V1__PsStatus *));
    Shardgrad__V1__WorkerStatus *workers = sg_xcalloc(c->n_workers, sizeof *workers);
    Shardgrad__V1__WorkerStatus **worker_list = sg_xcalloc(c->n_workers, sizeof(Shardgrad__V1__WorkerStatus *));
    for (uint32_t i = 0; i < c->n_ps; i++) {
        fill_ps(c, i, &ps[i]);
        ps_list[i] = &ps[i];
    }
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (!is_listed(c, i))
            continue;
        fill_worker(c, i, &workers[i]);
        worker_list[response.n_workers++] = &workers[i];
    }
    response.job = c->config->job;
    response.state = c->state;
    response.mode = (Shardgrad__V1__Mode)c->config->update.mode;
    response.rule = (char *)sg_rule_name(c->config->update.rule);
    response.hyper = c->in_force;
    response.generation = c->generation;
    response.steps = c->groups[0].next_step;
    response.examples = c->examples;
    response.loss = mean_loss(c);
    response.waiting_for = (char *)sg_coordinator_waits_job(c, waiting_for);
    bool failed = c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED;
    response.reason = failed ? c->end_text : (char *)"";
    Shardgrad__V1__CheckpointStatus checkpoint;
    sg_coordinator_save_status(c, &checkpoint);
    if (sg_coordinator_save_due(c))
        response.checkpoint = &checkpoint;
    Shardgrad__V1__Evaluation evaluations[SG_COORDINATOR_EVALUATIONS], *evaluation_list[SG_COORDINATOR_EVALUATIONS];
    response.n_evaluations = sg_coordinator_evaluations_fill(c, evaluations, evaluation_list);
    response.evaluations = evaluation_list;
    response.ps = ps_list;
    response.n_ps = c->n_ps;
    response.workers = worker_list;
    response.staleness = sum_staleness(c, &response.n_staleness);
    sg_coordinator_reply(c, call, &response.base);
    free(response.staleness);
    free(worker_list);
    free(workers);
    free(ps_list);
    free(ps);
}
