/* worker/nn/batch_norm.c - each channel brought to mean 0 and deviation 1 over a batch (Ioffe and Szegedy 2015).
 *
 * Training: mean and deviation are those of the batch. What the running statistics should become after it comes to
 * where other variables have their gradients: the update rule `average` makes the mean over all workers of it. It is
 * proposed on the way forward, since a loss need not lead back here, and one layer may see several batches, one after
 * the other. Evaluation: the running statistics, which are constants then and stay as they are. */
#include "worker/nn/layers.h"
#include "worker/nn/norm_replicas.h"
#include "worker/nn/shape.h"

#define DEFAULT_EPSILON  1e-5
#define DEFAULT_MOMENTUM 0.1

typedef struct batch_norm {
    sg_tensor *x, *gamma, *beta, *running_mean, *running_variance;
    sg_batch_norm_options options;
    sg_norm_shape shape;
    void *mean, *variance, *inverse; /* [channels] */
    double n_seen;                   /* elements of each channel, over all replicas, that mean and variance are of */
} batch_norm;

static const sg_kernel_norm *kernel_of(const sg_tape *tape, const batch_norm *b)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    return b->shape.block > 0 ? kernel->blocks->norm : kernel->norm;
}

/* Takes what was seen, times `factor`, into the running statistics; in evaluation they are what they were. */
static void propose_one(sg_tape *tape, const batch_norm *b, sg_tensor *running, const void *seen, double factor)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    const void *before = sg_tape_proposed(running);
    const bool has_seen = b->options.training && b->n_seen > 0;
    void *mixed =
        running->needs_gradient && has_seen ? sg_tape_alloc(tape, b->shape.channels * kernel->elem_bytes) : NULL;
    if (mixed) {
        kernel->scaled(b->shape.channels, 1 - b->options.momentum, before, false, mixed);
        kernel->scaled(b->shape.channels, b->options.momentum * factor, seen, true, mixed);
    }
    sg_tape_propose(running, mixed ? mixed : before);
}

/* The variance of the batch is that of a sample: m / (m - 1) times the mean square. */
static void propose(sg_tape *tape, const batch_norm *b)
{
    const double m = b->n_seen;
    propose_one(tape, b, b->running_mean, b->mean, 1);
    propose_one(tape, b, b->running_variance, b->variance, m > 1 ? m / (m - 1) : 1);
}

static void batch_norm_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const batch_norm *b = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    const size_t channels = b->shape.channels;
    char *sums = sg_tape_scratch(tape, 2 * channels * kernel->elem_bytes);
    if (!sums)
        return;
    if (b->options.relu)
        kernel->relu_backward(y->n_elems, y->value, y->gradient, false, y->gradient);
    kernel_of(tape, b)->batch_sums(&b->shape, b->x->value, b->mean, b->inverse, y->gradient, sums);
    bool accumulate;
    void *dbeta = sg_tape_gradient(tape, b->beta, &accumulate);
    if (dbeta)
        kernel->scaled(channels, 1, sums, accumulate, dbeta);
    void *dgamma = sg_tape_gradient(tape, b->gamma, &accumulate);
    if (dgamma)
        kernel->scaled(channels, 1, sums + channels * kernel->elem_bytes, accumulate, dgamma);
    void *dx = sg_tape_gradient(tape, b->x, &accumulate);
    const void *all_sums = b->options.training ? sums : NULL;
    if (dx && all_sums && b->options.replicas.add_up)
        all_sums = sg_norm_replicas_sums(tape, &b->options.replicas, &b->shape, sums, b->n_seen);
    if (dx && sg_tape_check(tape, NULL) == SG_OK)
        kernel_of(tape, b)->batch_backward(&b->shape, b->x->value, b->mean, b->inverse, b->gamma->value, y->gradient,
                                           all_sums, accumulate, dx);
}

static bool shapes_fit(const sg_tensor *x, const sg_tensor *const *ofchannel)
{
    if (x->rank != 2 && x->rank != 4)
        return false;
    for (size_t i = 0; i < 4; i++)
        if (ofchannel[i]->rank != 1 || ofchannel[i]->shape[0] != x->shape[1])
            return false;
    return true;
}

static bool may_read(sg_tape *tape, const batch_norm *b)
{
    const sg_tensor *const all[] = {b->x, b->running_mean, b->running_variance, b->gamma, b->beta};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        if (!sg_tape_may_read(tape, all[i], 0, all[i]->n_elems))
            return false;
    return true;
}

/* Chooses the statistics and computes. */
static bool compute(sg_tape *tape, batch_norm *b, sg_tensor *y)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    const size_t n_bytes = b->shape.channels * kernel->elem_bytes;
    b->inverse = sg_tape_alloc(tape, n_bytes);
    b->mean = b->options.training ? sg_tape_alloc(tape, n_bytes) : b->running_mean->value;
    b->variance = b->options.training ? sg_tape_alloc(tape, n_bytes) : b->running_variance->value;
    if (!b->inverse || !b->mean || !b->variance || !may_read(tape, b))
        return false;
    b->n_seen = (double)(b->shape.images * b->shape.plane);
    if (b->options.training)
        kernel_of(tape, b)->batch_statistics(&b->shape, b->x->value, b->mean, b->variance);
    if (b->options.training && b->options.replicas.add_up &&
        !sg_norm_replicas_combine(tape, &b->options.replicas, &b->shape, &b->mean, &b->variance, &b->n_seen))
        return false;
    kernel->norm->inverse_deviation(b->shape.channels, b->options.epsilon, b->variance, b->inverse);
    kernel_of(tape, b)->batch_forward(&b->shape, b->x->value, b->mean, b->inverse, b->gamma->value, b->beta->value,
                                      b->options.relu, y->value);
    propose(tape, b);
    return true;
}

sg_tensor *sg_batch_norm_forward(sg_tape *tape, sg_tensor *x, sg_tensor *gamma, sg_tensor *beta,
                                 sg_tensor *running_mean, sg_tensor *running_variance, sg_batch_norm_options options)
{
    if (!x || !gamma || !beta || !running_mean || !running_variance)
        return NULL;
    if (!shapes_fit(x, (const sg_tensor *const[]){gamma, beta, running_mean, running_variance}))
        return sg_tape_fail(tape, SG_INVALID,
                            "batch_norm: input %s, gamma %s, beta %s, mean %s, variance %s; wanted [images, channels, "
                            "height, width] or [rows, channels], and four times [channels]",
                            sg_shape_describe(x).text, sg_shape_describe(gamma).text, sg_shape_describe(beta).text,
                            sg_shape_describe(running_mean).text, sg_shape_describe(running_variance).text);
    options.epsilon = options.epsilon > 0 ? options.epsilon : DEFAULT_EPSILON;
    options.momentum = options.momentum > 0 ? options.momentum : DEFAULT_MOMENTUM;
    batch_norm state = {.x = x,
                        .gamma = gamma,
                        .beta = beta,
                        .running_mean = running_mean,
                        .running_variance = running_variance,
                        .options = options};
    state.shape = (sg_norm_shape){.images = x->shape[0],
                                  .channels = x->shape[1],
                                  .plane = x->rank == 4 ? x->shape[2] * x->shape[3] : 1,
                                  .block = x->block};
    sg_tensor *y = sg_tape_output_like(tape, x, x->needs_gradient || gamma->needs_gradient || beta->needs_gradient);
    if (!y || !compute(tape, &state, y))
        return NULL;
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){x, gamma, beta, running_mean, running_variance},
                                          .n_inputs = 5,
                                          .backward = batch_norm_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
