/* worker/train/evaluate.c - see evaluate.h. */
#include "worker/train/evaluate.h"

#include "worker/nn/layers.h"

#define ROWS_AT_ONCE 500u

static sg_status count_correct(sg_workload *w, sg_batches *batches, uint64_t *correct, sg_error *err)
{
    *correct = 0;
    for (uint64_t i = 0; i < sg_batches_per_epoch(batches); i++) {
        if (sg_workload_is_stopped(w))
            return sg_error_set(err, SG_CANCELLED, "stopped while it evaluated");
        const sg_batch *batch = sg_batches_get(batches, i, 0, 1);
        sg_tape_begin(w->tape);
        sg_tensor *logits = sg_model_forward(w->model, w->tape, batch->inputs, batch->n_rows, SG_MODEL_PREDICTS);
        *correct += sg_softmax_cross_entropy_count_correct(w->tape, logits, batch->labels, batch->n_rows);
        sg_status status = sg_tape_check(w->tape, err);
        if (status != SG_OK)
            return status;
    }
    return SG_OK;
}

sg_status sg_evaluate_accuracy(sg_workload *w, double *accuracy, sg_error *err)
{
    sg_batches *batches;
    sg_batches_options options = {.batch = ROWS_AT_ONCE, .seed = w->config->seed, .in_order = true};
    sg_status status = sg_batches_create(w->test, &options, &batches, err);
    if (status != SG_OK)
        return status;
    uint64_t correct;
    status = count_correct(w, batches, &correct, err);
    if (status == SG_OK)
        *accuracy = (double)correct / (double)w->test->n_examples;
    sg_batches_destroy(batches);
    return status;
}
