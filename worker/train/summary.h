/* worker/train/summary.h - summary.json of a run directory: what came out of a run, for people and scripts.
 *
 * worker/README.md says what each field means. */
#ifndef SG_WORKER_TRAIN_SUMMARY_H
#define SG_WORKER_TRAIN_SUMMARY_H

#include "worker/train/workload.h"

typedef struct sg_summary {
    char mode[16]; /* "sync", "async", "local" */
    uint64_t ps, workers, steps;
    double seconds, examples_per_second;
    double final_train_loss; /* NaN (null in the file): no step was made, or one of those that count was not finite */
    uint64_t loss_steps;     /* of worker 0, that it is the mean over: at most SG_SUMMARY_LOSSES */
    double test_accuracy;
    uint64_t non_finite_steps; /* whose gradients worker 0 left out, since they were not finite */
    bool diverged;             /* the final loss or the final values are not finite */
    char parameters_sha256[SG_WORKLOAD_HASH_BYTES];
    char initial_parameters_sha256[SG_WORKLOAD_HASH_BYTES];
    char version[32];
} sg_summary;

/* One test on the way, of the whole test set. */
typedef struct sg_summary_evaluation {
    uint64_t step; /* with whose values, before it */
    double test_accuracy, test_loss;
} sg_summary_evaluation;

/* Mean of the newest losses of a training: the last of at most SG_SUMMARY_LOSSES steps, weighted by their examples.
 * A value; zeroed is empty. */
#define SG_SUMMARY_LOSSES 100u
typedef struct sg_summary_losses {
    double losses[SG_SUMMARY_LOSSES];
    uint64_t examples[SG_SUMMARY_LOSSES];
    uint64_t n; /* added in all */
} sg_summary_losses;
void sg_summary_losses_add(sg_summary_losses *losses, double loss, uint64_t examples);
double sg_summary_losses_mean(const sg_summary_losses *losses); /* NaN if there is none */

/* A loss as it is shown: four digits, but not the dozens of one of a training that diverges. */
#define SG_LOSS_TEXT_BYTES 32u
void sg_loss_print(double loss, char out[SG_LOSS_TEXT_BYTES]);

/* Whether the job was finished already when it was begun: nobody made a step. */
bool sg_summary_is_of_no_step(const sg_summary *summary);

/* Fills in what is told of the end: final_train_loss, diverged and parameters_sha256. test_accuracy is the caller's. */
void sg_summary_conclude(sg_summary *summary, const sg_workload *workload, const sg_summary_losses *losses);

/* Replaces run_dir/summary.json, whole or not at all; it names no evaluation yet. Errors: NOT_FOUND (it cannot be
 * written). */
SG_MUST_USE sg_status sg_summary_write(const sg_summary *summary, const char *run_dir, sg_error *err);
/* Replaces it by one that has these evaluations, too. Errors: NOT_FOUND, DATA. */
SG_MUST_USE sg_status sg_summary_add_evaluations(const char *run_dir, const sg_summary_evaluation *evaluations,
                                                 size_t n, sg_error *err);
/* The same content in one line, where the file cannot be written; freed by free(). The worker daemon prints it then,
 * with this before it: to its standard error, from which `shardgrad run` takes it, or, started by hand, to its standard
 * output. */
#define SG_SUMMARY_UNWRITTEN "summary "
char *sg_summary_line(const sg_summary *summary);
/* Reads such a line. Errors: DATA. */
SG_MUST_USE sg_status sg_summary_from_line(const char *line, sg_summary *summary, sg_error *err);
/* Errors: NOT_FOUND, DATA (not a summary). */
SG_MUST_USE sg_status sg_summary_read(const char *run_dir, sg_summary *summary, sg_error *err);

#endif
