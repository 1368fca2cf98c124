/* worker/cli/evaluations.c - see evaluations.h. */
#include "worker/cli/evaluations.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/workers.h"

void sg_evaluations_deinit(sg_evaluations *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->items[i].parts);
    free(e->items);
    *e = (sg_evaluations){0};
}

/* Makes it, if need be. */
static sg_evaluation *find(sg_evaluations *e, uint64_t generation, uint64_t iteration)
{
    size_t at = e->n;
    while (at > 0 && e->items[at - 1].iteration >= iteration)
        at--;
    if (at < e->n && e->items[at].iteration == iteration)
        return &e->items[at];
    e->items = sg_xrealloc(e->items, e->n + 1, sizeof *e->items);
    memmove(&e->items[at + 1], &e->items[at], (e->n - at) * sizeof *e->items);
    e->n++;
    e->items[at] = (sg_evaluation){.iteration = iteration, .generation = generation};
    return &e->items[at];
}

static sg_tested *find_part(sg_evaluation *evaluation, uint32_t worker)
{
    size_t at = evaluation->n;
    while (at > 0 && evaluation->parts[at - 1].worker >= worker)
        at--;
    if (at < evaluation->n && evaluation->parts[at].worker == worker)
        return &evaluation->parts[at].tested;
    evaluation->parts = sg_xrealloc(evaluation->parts, evaluation->n + 1, sizeof *evaluation->parts);
    memmove(&evaluation->parts[at + 1], &evaluation->parts[at], (evaluation->n - at) * sizeof *evaluation->parts);
    evaluation->n++;
    evaluation->parts[at].worker = worker;
    return &evaluation->parts[at].tested;
}

void sg_evaluations_take(sg_evaluations *e, uint32_t worker, uint64_t generation, uint64_t iteration,
                         const sg_tested *tested)
{
    if (worker >= SG_MAX_WORKERS || tested->examples > tested->of || tested->correct > tested->examples)
        return;
    sg_evaluation *evaluation = find(e, generation, iteration);
    if (generation < evaluation->generation)
        return;
    if (generation > evaluation->generation)
        evaluation->n = 0;
    evaluation->generation = generation;
    *find_part(evaluation, worker) = *tested;
}

void sg_evaluations_take_line(sg_evaluations *e, const char *who, const char *text)
{
    uint32_t worker;
    uint64_t generation, iteration;
    sg_tested tested = {0};
    if (sscanf(who, "worker-%" SCNu32, &worker) == 1 &&
        sscanf(text,
               "tested generation=%" SCNu64 " iteration=%" SCNu64 " examples=%" SCNu64 " of=%" SCNu64
               " correct=%" SCNu64 " loss=%f",
               &generation, &iteration, &tested.examples, &tested.of, &tested.correct, &tested.loss) == 6)
        sg_evaluations_take(e, worker, generation, iteration, &tested);
}

/* False: parts are missing, or they are not of one set. */
static bool add_up(const sg_evaluation *evaluation, sg_summary_evaluation *sum)
{
    const uint64_t of = evaluation->parts[0].tested.of;
    uint64_t examples = 0, correct = 0;
    double loss = 0;
    for (size_t i = 0; i < evaluation->n; i++) {
        const sg_tested *part = &evaluation->parts[i].tested;
        if (part->of != of || part->examples > of - examples)
            return false;
        examples += part->examples;
        correct += part->correct;
        loss += (double)part->loss * (double)part->examples;
    }
    *sum = (sg_summary_evaluation){
        .step = evaluation->iteration, .test_accuracy = (double)correct / (double)of, .test_loss = loss / (double)of};
    return of > 0 && examples == of;
}

sg_status sg_evaluations_write(const sg_evaluations *e, const char *run_dir, sg_error *err)
{
    sg_summary_evaluation *whole = sg_xcalloc(e->n, sizeof *whole);
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++)
        n += add_up(&e->items[i], &whole[n]);
    sg_status status = n > 0 ? sg_summary_add_evaluations(run_dir, whole, n, err) : SG_OK;
    free(whole);
    return status;
}
