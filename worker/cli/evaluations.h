/* worker/cli/evaluations.h - the tests on the way of a run (train.test_every_steps, _epochs), collected for its
 * summary.
 *
 * In a cluster each worker tells in its log what it found of its part, "tested generation=G iteration=I examples=N of=M
 * correct=C loss=L": the parts of an iteration are added up, and it counts once they are the whole test set. A job that
 * went back tests again in its next generation: nothing of an older one counts beside that. A worker that tells of its
 * part once more, as its next incarnation does, replaces it. Threads: one at a time. */
#ifndef SG_WORKER_CLI_EVALUATIONS_H
#define SG_WORKER_CLI_EVALUATIONS_H

#include "shardgrad/client.h"
#include "worker/train/summary.h"

typedef struct sg_evaluation_part {
    uint32_t worker;
    sg_tested tested;
} sg_evaluation_part;

/* Of one iteration, so far. */
typedef struct sg_evaluation {
    uint64_t iteration, generation;
    sg_evaluation_part *parts; /* [n] by worker, ascending */
    size_t n;
} sg_evaluation;

/* A value; zeroed it is empty. */
typedef struct sg_evaluations {
    sg_evaluation *items; /* [n] by iteration, ascending */
    size_t n;
} sg_evaluations;

void sg_evaluations_deinit(sg_evaluations *evaluations);
void sg_evaluations_take(sg_evaluations *evaluations, uint32_t worker, uint64_t generation, uint64_t iteration,
                         const sg_tested *tested);
/* The same from the text of a log line (behind its time, level and role) of "worker-W"; other lines are left alone. */
void sg_evaluations_take_line(sg_evaluations *evaluations, const char *who, const char *text);

/* Puts what is whole into run_dir/summary.json, which is there. Errors: NOT_FOUND, DATA. */
SG_MUST_USE sg_status sg_evaluations_write(const sg_evaluations *evaluations, const char *run_dir, sg_error *err);

#endif
