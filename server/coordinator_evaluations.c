/* server/coordinator_evaluations.c - what the workers found of the test set, added up by iteration. Nothing depends on
 * it: it is told by `status` and forgotten by the next generation, which tests again what it trains again. */
#include "server/coordinator_internal.h"

/* The one of this iteration; NULL: it is older than all that are kept, or of another set than the others' reports. */
static sg_coordinator_evaluation *find(sg_coordinator *c, const Shardgrad__V1__Evaluation *report)
{
    sg_coordinator_evaluation *list = c->evaluations;
    uint32_t at = c->n_evaluations; /* its place among them */
    while (at > 0 && list[at - 1].iteration > report->iteration)
        at--;
    if (at > 0 && list[at - 1].iteration == report->iteration)
        return list[at - 1].of == report->of ? &list[at - 1] : NULL;
    if (c->n_evaluations < SG_COORDINATOR_EVALUATIONS) {
        memmove(&list[at + 1], &list[at], (c->n_evaluations - at) * sizeof *list);
        c->n_evaluations++;
    } else if (at == 0) {
        return NULL;
    } else { /* the oldest goes */
        at--;
        memmove(&list[0], &list[1], at * sizeof *list);
    }
    list[at] = (sg_coordinator_evaluation){.iteration = report->iteration, .of = report->of};
    return &list[at];
}

void sg_coordinator_evaluations_take(sg_coordinator *c, uint32_t worker, const Shardgrad__V1__Evaluation *report)
{
    if (report == NULL || report->iteration >= c->frozen || report->of == 0 || report->examples > report->of ||
        report->correct > report->examples)
        return;
    sg_coordinator_evaluation *evaluation = find(c, report);
    if (evaluation == NULL || sg_workers_has(&evaluation->reported, worker) ||
        report->examples > evaluation->of - evaluation->examples)
        return;
    sg_workers_add(&evaluation->reported, worker);
    evaluation->examples += report->examples;
    evaluation->correct += report->correct;
    evaluation->loss_sum += (double)report->loss * (double)report->examples;
}

void sg_coordinator_evaluations_forget(sg_coordinator *c)
{
    c->n_evaluations = 0;
}

size_t sg_coordinator_evaluations_fill(const sg_coordinator *c, Shardgrad__V1__Evaluation *out,
                                       Shardgrad__V1__Evaluation **list)
{
    for (uint32_t i = 0; i < c->n_evaluations; i++) {
        const sg_coordinator_evaluation *evaluation = &c->evaluations[i];
        out[i] = (Shardgrad__V1__Evaluation)SHARDGRAD__V1__EVALUATION__INIT;
        out[i].iteration = evaluation->iteration;
        out[i].examples = evaluation->examples;
        out[i].of = evaluation->of;
        out[i].correct = evaluation->correct;
        out[i].loss = evaluation->examples == 0 ? 0 : (float)(evaluation->loss_sum / (double)evaluation->examples);
        list[i] = &out[i];
    }
    return c->n_evaluations;
}
