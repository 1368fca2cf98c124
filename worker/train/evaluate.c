/* worker/train/evaluate.c - see evaluate.h. */
#include "worker/train/evaluate.h"

#include "worker/nn/layers.h"

/* More at once are not faster. */
#define MAX_ROWS ((uint64_t)500)

/* Of all parts together: so many that nobody has more of them than of a batch of the training, for which there is
 * memory. By the configuration alone, so that who evaluates a part of the same has the same in mind. */
static uint64_t rows_at_once(const sg_config *config, uint32_t size)
{
    const uint64_t sharers = config->update.mode == SG_MODE_SYNC ? config->workers : 1;
    const uint64_t own = config->train.batch / sharers + (config->train.batch % sharers != 0);
    return own < MAX_ROWS / size ? own * size : MAX_ROWS;
}

/* The batches are kept from one time to the next: what is asked for first is then made already. */
static sg_status open_batches(sg_workload *w, uint32_t size, sg_error *err)
{
    const sg_batches_options options = {
        .batch = rows_at_once(w->config, size), .seed = w->config->seed, .in_order = true};
    if (w->test_batches != NULL && w->test_rows == options.batch)
        return SG_OK;
    sg_batches_destroy(w->test_batches);
    w->test_batches = NULL;
    w->test_rows = options.batch;
    return sg_batches_create(w->test, &options, &w->test_batches, err);
}

sg_status sg_evaluate_part(sg_workload *w, uint32_t rank, uint32_t size, sg_tested *tested, sg_error *err)
{
    sg_status status = open_batches(w, size, err);
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
