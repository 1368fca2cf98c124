/* worker/nn/softmax_cross_entropy.c - the loss of a classifier. Softmax and cross entropy are one layer, because their
 * joint gradient is simple and stable. */
#include "worker/nn/layers.h"

typedef struct cross_entropy {
    sg_tensor *logits;
    const uint32_t *labels;
    double smoothing;
    void *probabilities;
} cross_entropy;

static void cross_entropy_backward(sg_tape *tape, const void *state, sg_tensor *loss)
{
    const cross_entropy *c = state;
    bool accumulate;
    void *dlogits = sg_tape_gradient(tape, c->logits, &accumulate);
    if (dlogits)
        sg_tape_kernel(tape)->softmax_cross_entropy_backward(c->logits->shape[0], c->logits->shape[1], c->probabilities,
                                                             c->labels, c->smoothing, loss->gradient, accumulate,
                                                             dlogits);
}

/* False, with the failure kept on the tape, where labels do not fit the logits. */
static bool check_labels(sg_tape *tape, const sg_tensor *logits, const uint32_t *labels, size_t n_labels)
{
    if (logits->rank != 2 || logits->shape[0] != n_labels) {
        sg_tape_fail(tape, SG_INVALID,
                     "cross entropy: logits of rank %u with %llu rows and %zu labels; wanted [rows, "
                     "classes] and a label per row",
                     logits->rank, logits->rank ? (unsigned long long)logits->shape[0] : 1ULL, n_labels);
        return false;
    }
    for (size_t i = 0; i < n_labels; i++) {
        if (labels[i] >= logits->shape[1]) {
            sg_tape_fail(tape, SG_INVALID, "cross entropy: label %u in row %zu; there are %llu classes, from 0",
                         labels[i], i, (unsigned long long)logits->shape[1]);
            return false;
        }
    }
    return true;
}

sg_tensor *sg_softmax_cross_entropy_forward(sg_tape *tape, sg_tensor *logits, const uint32_t *labels, size_t n_labels)
{
    return sg_softmax_cross_entropy_smoothed_forward(tape, logits, labels, n_labels, 0);
}

sg_tensor *sg_softmax_cross_entropy_smoothed_forward(sg_tape *tape, sg_tensor *logits, const uint32_t *labels,
                                                     size_t n_labels, double smoothing)
{
    if (!logits || !check_labels(tape, logits, labels, n_labels))
        return NULL;
    if (!(smoothing >= 0 && smoothing < 1))
        return sg_tape_fail(tape, SG_INVALID, "cross entropy: smoothing %g; wanted 0 or more, and less than 1",
                            smoothing);
    sg_tensor *loss = sg_tape_output(tape, 0, NULL, logits->needs_gradient);
    labels = sg_tape_bring(tape, labels, n_labels * sizeof *labels);
    cross_entropy state = {.logits = logits, .labels = labels, .smoothing = smoothing};
    state.probabilities = sg_tape_alloc(tape, logits->n_elems * sg_tape_kernel(tape)->elem_bytes);
    if (!loss || !state.probabilities || !sg_tape_may_read(tape, logits, 0, logits->n_elems))
        return NULL;
    sg_tape_kernel(tape)->softmax_cross_entropy(logits->shape[0], logits->shape[1], logits->value, labels, smoothing,
                                                state.probabilities, loss->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = loss,
                                          .inputs = &logits,
                                          .n_inputs = 1,
                                          .backward = cross_entropy_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return loss;
}

uint64_t sg_softmax_cross_entropy_count_correct(sg_tape *tape, const sg_tensor *logits, const uint32_t *labels,
                                                size_t n_labels)
{
    if (!logits || !check_labels(tape, logits, labels, n_labels))
        return 0;
    labels = sg_tape_bring(tape, labels, n_labels * sizeof *labels);
    if (sg_tape_check(tape, NULL) != SG_OK)
        return 0;
    return sg_tape_kernel(tape)->count_correct(logits->shape[0], logits->shape[1], logits->value, labels);
}
