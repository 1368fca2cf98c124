/* worker/cli/evaluations.c - see evaluations.h. */
#include "worker/cli/evaluations.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void sg_evaluations_deinit(sg_evaluations *e)
{
    free(e->items);
    *e = (sg_evaluations){0};
}

/* Makes it, if need be. */
static sg_evaluation *find(sg_evaluations *e, uint64_t iteration)
{
    size_t at = e->n;
    while (at > 0 && e->items[at - 1].iteration >= iteration)
        at--;
    if (at < e->n && e->items[at].iteration == iteration)
        return &e->items[at];
    e->items = sg_xrealloc(e->items, e->n + 1, sizeof *e->items);
    memmove(&e->items[at + 1], &e->items[at], (e->n - at) * sizeof *e->items);
    e->n++;
    e->items[at] = (sg_evaluation){.iteration = iteration};
    return &e->items[at];
}

void sg_evaluations_take(sg_evaluations *e, uint32_t worker, uint64_t iteration, const sg_tested *tested)
{
    if (worker >= SG_MAX_WORKERS || tested->examples > tested->of)
        return;
    sg_evaluation *of = find(e, iteration);
    const bool is_again =
        of->of != tested->of || sg_workers_has(&of->reporters, worker) || tested->examples > of->of - of->examples;
    if (is_again)
        *of = (sg_evaluation){.iteration = iteration, .of = tested->of};
    sg_workers_add(&of->reporters, worker);
    of->examples += tested->examples;
    of->correct += tested->correct;
    of->loss_sum += (double)tested->loss * (double)tested->examples;
}

void sg_evaluations_take_line(sg_evaluations *e, const char *who, const char *text)
{
    uint32_t worker;
    uint64_t iteration;
    sg_tested tested = {0};
    if (sscanf(who, "worker-%" SCNu32, &worker) == 1 &&
        sscanf(text, "tested iteration=%" SCNu64 " examples=%" SCNu64 " of=%" SCNu64 " correct=%" SCNu64 " loss=%f",
               &iteration, &tested.examples, &tested.of, &tested.correct, &tested.loss) == 5)
        sg_evaluations_take(e, worker, iteration, &tested);
}

sg_status sg_evaluations_write(const sg_evaluations *e, const char *run_dir, sg_error *err)
{
    sg_summary_evaluation *whole = sg_xcalloc(e->n, sizeof *whole);
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++) {
        const sg_evaluation *of = &e->items[i];
        if (of->of > 0 && of->examples == of->of)
            whole[n++] = (sg_summary_evaluation){.step = of->iteration,
                                                 .test_accuracy = (double)of->correct / (double)of->of,
                                                 .test_loss = of->loss_sum / (double)of->of};
    }
    sg_status status = n > 0 ? sg_summary_add_evaluations(run_dir, whole, n, err) : SG_OK;
    free(whole);
    return status;
}
