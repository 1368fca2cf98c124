/* server/coordinator_evaluations.c - what the workers found of the test set, added up by iteration. Nothing depends on
 * it: it is told by `status` and forgotten by the next generation, which tests again what it trains again. */
#include "server/coordinator_internal.h"

/* The one of this iteration; NULL: it is older than all that are kept, or of another set than the others' reports. */
static sg_coordinator_evaluation *find(sg_coordinator *c, const Shardgrad__V1__Evaluation *report)
{
    const uint64_t n = c->n_evaluations;
    const uint64_t first = n > SG_COORDINATOR_EVALUATIONS ? n - SG_COORDINATOR_EVALUATIONS : 0;
    for (uint64_t i = n; i > first; i--) {
        sg_coordinator_evaluation *found = &c->evaluations[(i - 1) % SG_COORDINATOR_EVALUATIONS];
        if (found->iteration == report->iteration)
            return found->of == report->of ? found : NULL;
    }
    if (n >= SG_COORDINATOR_EVALUATIONS && report->iteration < c->evaluations[n % SG_COORDINATOR_EVALUATIONS].iteration)
        return NULL;
    sg_coordinator_evaluation *made = &c->evaluations[c->n_evaluations++ % SG_COORDINATOR_EVALUATIONS];
    *made = (sg_coordinator_evaluation){.iteration = report->iteration, .of = report->of};
    return made;
}

void sg_coordinator_evaluations_take(sg_coordinator *c, uint32_t worker, const Shardgrad__V1__Evaluation *report)
{
    if (report == NULL || report->of == 0 || report->examples > report->of || report->correct > report->examples)
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
    const size_t n =
        c->n_evaluations < SG_COORDINATOR_EVALUATIONS ? (size_t)c->n_evaluations : SG_COORDINATOR_EVALUATIONS;
    for (size_t i = 0; i < n; i++) {
        const sg_coordinator_evaluation *evaluation =
            &c->evaluations[(c->n_evaluations - n + i) % SG_COORDINATOR_EVALUATIONS];
        out[i] = (Shardgrad__V1__Evaluation)SHARDGRAD__V1__EVALUATION__INIT;
        out[i].iteration = evaluation->iteration;
        out[i].examples = evaluation->examples;
        out[i].of = evaluation->of;
        out[i].correct = evaluation->correct;
        out[i].loss = evaluation->examples == 0 ? 0 : (float)(evaluation->loss_sum / (double)evaluation->examples);
        list[i] = &out[i];
    }
    return n;
}
