/* worker/train/evaluate.c - see evaluate.h. */
#include "worker/train/evaluate.h"

#include "worker/nn/layers.h"

#define ROWS_AT_ONCE 500u

/* The batches are kept from one time to the next: what is asked for first is then made already. */
static sg_status open_batches(sg_workload *w, sg_error *err)
{
    sg_batches_options options = {.batch = ROWS_AT_ONCE, .seed = w->config->seed, .in_order = true};
    return w->test_batches != NULL ? SG_OK : sg_batches_create(w->test, &options, &w->test_batches, err);
}

sg_status sg_evaluate_part(sg_workload *w, uint32_t rank, uint32_t size, sg_tested *tested, sg_error *err)
{
    sg_status status = open_batches(w, err);
    double loss = 0;
    *tested = (sg_tested){.of = w->test->n_examples};
    const uint64_t n_batches = status == SG_OK ? sg_batches_per_epoch(w->test_batches) : 0;
    for (uint64_t i = 0; i < n_batches && status == SG_OK; i++) {
        if (sg_workload_is_stopped(w))
            return sg_error_set(err, SG_CANCELLED, "stopped while it evaluated");
        const sg_batch *batch = sg_batches_get(w->test_batches, i, rank, size);
        sg_batches_expect(w->test_batches, (i + 1) % n_batches, rank, size);
        sg_tape_begin(w->tape);
        sg_tensor *logits = sg_model_forward(w->model, w->tape, batch->inputs, batch->n_rows,
                                             (sg_model_pass){.use = SG_MODEL_PREDICTS});
        tested->correct += sg_softmax_cross_entropy_count_correct(w->tape, logits, batch->labels, batch->n_rows);
        sg_tensor *mean = sg_softmax_cross_entropy_forward(w->tape, logits, batch->labels, batch->n_rows);
        status = sg_tape_check(w->tape, err);
        if (status == SG_OK && batch->n_rows > 0)
            loss += sg_tape_get(w->tape, mean, 0) * (double)batch->n_rows;
        tested->examples += batch->n_rows;
    }
    if (tested->examples > 0)
        tested->loss = (float)(loss / (double)tested->examples);
    return status;
}

sg_status sg_evaluate_accuracy(sg_workload *w, double *accuracy, sg_error *err)
{
    sg_tested tested;
    sg_status status = sg_evaluate_part(w, 0, 1, &tested, err);
    if (status == SG_OK)
        *accuracy = (double)tested.correct / (double)tested.of;
    return status;
}

bool sg_evaluate_is_due(const sg_workload *w, uint64_t iteration)
{
    const uint64_t steps = w->config->train.test_every_steps;
    const uint64_t epochs = w->config->train.test_every_epochs * w->steps_per_epoch;
    return iteration > 0 && iteration < w->total_steps &&
           ((steps > 0 && iteration % steps == 0) || (epochs > 0 && iteration % epochs == 0));
}
