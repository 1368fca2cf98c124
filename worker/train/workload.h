/* worker/train/workload.h - what there is to train: the data, the model, and the gradient of one part of one batch.
 *
 * The trainer with a cluster (trainer.h) and the one without (local.h) do the same work on the same workload, so their
 * results can be compared bit for bit. Threads: one user at a time, but sg_workload_stop may come from any. */
#ifndef SG_WORKER_TRAIN_WORKLOAD_H
#define SG_WORKER_TRAIN_WORKLOAD_H

#include <stdatomic.h>

#include "common/config.h"
#include "common/log.h"
#include "worker/data/batches.h"
#include "worker/models/model.h"

#define SG_WORKLOAD_HASH_BYTES 65u /* 64 hexadecimal digits */

typedef struct sg_workload {
    const sg_config *config;
    sg_dataset *train;
    sg_dataset *test; /* NULL where it was not asked for */
    sg_batches *batches;
    sg_batches *test_batches; /* of evaluate.c, test_rows in each; NULL: there was no need yet */
    uint64_t test_rows;
    sg_model *model; /* holds the initial values of config->seed when created */
    sg_tape *tape;
    uint64_t steps_per_epoch, total_steps;
    const sg_log *log;         /* for warnings; NULL, as it is created, is silent */
    uint64_t non_finite_steps; /* in which something was left out, since it was not finite */
    sg_log_pace non_finite_pace;
    atomic_bool stopped;
} sg_workload;

/* Reads the data and builds the model. config must outlive the workload. Errors: NOT_FOUND and DATA (a data file),
 * CONFIG (with the place in the cluster file), EXHAUSTED. Destroyed by sg_workload_destroy. */
SG_MUST_USE sg_status sg_workload_create(const sg_config *config, bool with_test, sg_workload **workload,
                                         sg_error *err);
/* Whether the model fits the training data, of which as little is read as the format allows, and, where all of it is
 * read, whether the test data do, too. Who trains may have a trainer of his own: what only the built-in one wants is
 * left to sg_workload_create. Errors: the same. */
SG_MUST_USE sg_status sg_workload_check(const sg_config *config, sg_error *err);
/* What of it can be known without the data: whether there is such a model. Errors: CONFIG, without the place. */
SG_MUST_USE sg_status sg_workload_check_model(const sg_config *config, sg_error *err);
/* The number of training examples, for whom is about to start workers; what would keep the built-in trainer from
 * beginning is found as far as that is cheap: the rule, the model, and whether it fits. Errors: the same. */
SG_MUST_USE sg_status sg_workload_measure(const sg_config *config, uint64_t *n_examples, sg_error *err);
/* Whether a worker needs the test data: worker 0 for the end, all of them where there is testing on the way. */
bool sg_workload_needs_test(const sg_config *config, uint32_t worker);
void sg_workload_destroy(sg_workload *workload); /* NULL is fine */

/* Steps of a whole training: train.steps, or else train.epochs times ceil(n_examples / train.batch). */
uint64_t sg_workload_total_steps(const sg_config *config, uint64_t n_examples);
uint64_t sg_workload_steps_per_epoch(const sg_config *config, uint64_t n_examples);

/* What is done with variables while a gradient is computed; any may be NULL. Each is called on the calling thread, and
 * a failure ends the computation. */
typedef struct sg_workload_hooks {
    /* Right before the forward pass reads a variable, or the next part of a large one (see sg_tape_read_fn). */
    sg_status (*before_read)(void *user, const sg_range *part, sg_error *err);
    /* Between the forward and the backward pass: step->loss and step->examples are filled in. */
    sg_status (*on_loss)(void *user, const sg_step *step, sg_error *err);
    /* As soon as the gradient of a variable, or of the next part of a large one, is final and its values are read no
     * more, those of the last layers first; for each that is not frozen (see sg_tape_final_fn). left_out: it is not to
     * count, since it, one before it or the loss is not finite (update.non_finite: skip). */
    sg_status (*on_final)(void *user, const sg_range *part, bool left_out, sg_error *err);
    void *user;
} sg_workload_hooks;

/* Forward and backward over the rows that step->rank of step->size has of batch step->number: fills the variables'
 * gradients, step->loss (mean over these rows) and step->examples. Zero rows give loss 0 and gradients 0. `next` is the
 * batch that will probably be asked for after it: it is made meanwhile. hooks may be NULL. */
SG_MUST_USE sg_status sg_workload_gradient(sg_workload *workload, sg_step *step, uint64_t next,
                                           const sg_workload_hooks *hooks, sg_error *err);

/* Number of examples in the first n_steps batches. */
uint64_t sg_workload_examples(const sg_workload *workload, uint64_t n_steps);
size_t sg_workload_n_elems(const sg_variable *variable);

/* Whether all values are finite. */
bool sg_workload_is_finite(const sg_workload *workload);
/* Logs a warning where the learning rate is 0 long before the last step: what comes after changes nothing; and where
 * so many workers are too many for a batch. */
void sg_workload_warn(const sg_workload *workload, uint64_t n_workers, const sg_log *log);

/* SHA-256, in hexadecimal, of all values: float32, little endian, variables in declared order. */
void sg_workload_hash(const sg_workload *workload, char out[SG_WORKLOAD_HASH_BYTES]);

/* Ends what goes on with this workload (training, evaluation) soon, with CANCELLED. */
void sg_workload_stop(sg_workload *workload);
bool sg_workload_is_stopped(const sg_workload *workload);

#endif
