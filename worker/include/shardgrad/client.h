/* shardgrad/client.h - take part in training from a program of your own.
 *
 *     sg_error err;
 *     sg_client *client;
 *     sg_variable vars[] = {
 *         { .name = "weight", .rank = 2, .shape = { 784, 10 }, .value = weight, .gradient = weight_grad },
 *         { .name = "bias",   .rank = 1, .shape = { 10 },      .value = bias,   .gradient = bias_grad },
 *     };
 *     sg_status status = sg_client_open(&(sg_client_options){ .config = "cluster.yaml", .worker = 0 }, &client, &err);
 *     if (status != SG_OK)
 *         return fail(&err);
 *     status = sg_client_declare(client, vars, 2, &err);      // .value now holds the cluster's values
 *     sg_step step = { 0 };
 *     while (status == SG_OK && (status = sg_client_begin_step(client, &step, &err)) == SG_OK && step.number < 1000) {
 *         step.loss = forward_backward(..., &step.examples);  // fills the gradients
 *         status = sg_client_end_step(client, &step, &err);   // push, wait as the mode says, pull
 *         if (sg_client_goes_on(status))
 *             status = SG_OK;
 *     }
 *     sg_client_close(client);
 *     return status == SG_OK ? 0 : fail(&err);
 *
 * The loop is right in every mode, for a worker that joins late or is too late, and when the job goes back to a
 * checkpoint: a step may come to nothing (sg_client_goes_on), and the next one may have another number than expected.
 *
 * Threads. A client may be used from any thread. It runs threads of its own: they renew the lease while the caller
 * computes, and never call the caller except through the log callback. There is no process-wide state: a process
 * may hold any number of clients.
 *
 * Buffers. A value or gradient buffer that was handed to a call belongs to the library until that call returns, or,
 * for the calls that return an op, until sg_op_wait has returned anything but SG_TIMEOUT or SG_WAITING, or
 * sg_op_destroy has returned: on success, failure, cancel and time-out alike.
 *
 * Errors. Codes worth a branch: SG_LATE, SG_ROLLED_BACK, SG_FENCED (below: sg_client_goes_on), SG_TIMEOUT (a deadline
 * passed; the op lives on), SG_PEER_LOST (a worker or a ps died and the job with it), SG_UNAVAILABLE (nobody answers),
 * SG_MISMATCH (the cluster trains other variables), SG_DENIED (certificate, token or role). Once a client has failed
 * with PEER_LOST or STOPPED every later call fails the same way and only sg_client_close is left.
 *
 * Three errors end steps, and not the training. Every op that was under way has ended so, and all calls but
 * sg_client_begin_step fail so, for each group until that has returned the step with which it goes on. The values of
 * that step it brings, too. What it returns itself is final. With values_later, ops of the step before may be found to
 * have failed so when the next step has begun: then sg_client_info.incarnation is another than before it.
 *
 * SG_LATE: the cluster has backup workers and closed the step without this one; what was pushed to it may count in
 * part.
 *
 * SG_FENCED: the cluster gave this worker up for lost (it stood still for longer than the lease), or another process
 * has taken its index. What was not acknowledged counts no more. sg_client_begin_step comes again as a new life, and
 * returns SG_FENCED itself where another process has the index: then end, exit 75.
 *
 * SG_ROLLED_BACK: a ps was lost, and with it what it held; the message names it. The job goes on from the newest
 * checkpoint, or, before the first step, begins again. What was pushed before counts no more (async: it may be in the
 * checkpoint or not: that is unknown). Before the first step sg_client_begin_step may send the value buffers, of all
 * groups, as initial values once more, so none is to be written to until it has returned. */
#ifndef SHARDGRAD_CLIENT_H
#define SHARDGRAD_CLIENT_H

#include "shardgrad/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SG_MAX_RANK 8

typedef struct sg_client sg_client;
typedef struct sg_op sg_op;

typedef struct sg_client_options {
    /* Cluster file. NULL: `coordinator` and `job` are used, all else has its default and is not compared with the
     * cluster's. */
    const char *config;
    const char *coordinator;   /* host:port of ps 0; NULL: the first ps of the cluster file */
    const char *job;           /* NULL: the file's */
    const char *const *set;    /* "KEY=VALUE" of keys that override the file's, NULL-terminated; NULL: none */
    uint32_t worker;           /* index of this worker, unique among live ones */
    uint64_t start_timeout_ms; /* how long peers may take to come; 0: the file's start_timeout_ms */
    /* Number of examples in the data set. One that differs from another worker's is refused: their epochs would not
     * agree. 0: not compared. */
    uint64_t data_examples;
    /* NULL: warnings, such as for whom it waits, go to standard error, a line each; a failure is in the sg_error alone.
     * For silence, give a function that does nothing. */
    sg_log_fn log;
    void *log_user;
    /* Asked several times a second, from any thread, while sg_client_open waits; true ends it with SG_CANCELLED. NULL:
     * never. Afterwards sg_client_interrupt does the same. */
    bool (*interrupted)(void *user);
    void *interrupted_user;
} sg_client_options;

/* A float32 tensor, elements in C order. The struct and its name are copied, the buffers are not: they must outlive
 * the client. Zero-initialise and fill in what is needed. */
typedef struct sg_variable {
    const char *name; /* unique, 1 to 255 bytes */
    uint32_t rank;    /* number of dimensions, 0 (a scalar) to SG_MAX_RANK */
    uint64_t shape[SG_MAX_RANK];
    float *value; /* prod(shape) elements; in: initial values, used if this worker initializes */
    /* prod(shape) elements, mean over the step's examples; may be NULL where frozen. Float32 here, whatever they travel
     * as (update.wire of the cluster). */
    float *gradient;
    uint32_t group;         /* variables of a group are updated together; 0 where there is only one */
    bool frozen;            /* served, never updated */
    float lr_multiplier;    /* factor on the learning rate; 0 means 1 (use `frozen` to stop training) */
    float decay_multiplier; /* factor on the weight decay; 0 means 1 */
    bool no_decay;          /* true: no weight decay */
    /* True: `gradient` is no gradient but what the value should become for this worker, such as a running statistic
     * after its batch. Sync: the new value is the mean over the workers, weighted by examples; async and ssp: it goes
     * 1 / (live workers) of the way there. update.rule and the multipliers have no part in it. */
    bool average;
} sg_variable;

/* What a worker found of its part of a set of examples that are not trained on. */
typedef struct sg_tested {
    uint64_t examples; /* that it looked at, 0 is allowed */
    uint64_t of;       /* examples in the whole set, the same on every worker; 0: nothing was tested */
    uint64_t correct;  /* classified as labelled */
    float loss;        /* mean over the examples */
} sg_tested;

/* One step of one group, as the cluster gives it. */
typedef struct sg_step {
    uint64_t number;     /* out: of the step, from 0; async, ssp: of the batch */
    uint64_t iteration;  /* out: of the trainer (sg_client_step_every); equals number where there is one group */
    uint32_t group;      /* in: set before begin_step; 0 where there is only one */
    uint32_t rank, size; /* out: this worker takes part `rank` of `size` of the global batch */
    float learning_rate; /* out */
    float loss;          /* in: mean loss over the examples, for progress reports; set before end_step */
    uint64_t examples;   /* in: number of examples that the gradients are means over; 0 is allowed */
    /* in: begin_step zeroes it; set before end_step where the values with which the step began were tested. The cluster
     * adds up what the members of an iteration found, each its own rows by rank and size, and `status` shows it. */
    sg_tested tested;
    /* in, read by begin_step: true lets it return while ops of the step before still bring values of this one. The
     * caller waits for a variable's op before it reads the variable, and for all of them before it pushes. Values that
     * no op brings, such as those of a worker that joins late, begin_step still waits for. In ssp it waits for all. */
    bool values_later;
} sg_step;

/* Connects, waiting up to start_timeout_ms for the coordinator and all ps, logging for whom. On success *client is to
 * be closed by sg_client_close; on failure it is left alone. Errors: CONFIG, NOT_FOUND (the file), UNAVAILABLE,
 * TIMEOUT, MISMATCH (job, data_examples), INVALID. */
SG_API SG_MUST_USE sg_status sg_client_open(const sg_client_options *options, sg_client **client, sg_error *err);

/* For a model whose groups step at different rates: before the variables are declared, says that `group` makes one step
 * in every `every`-th iteration of the trainer: in iteration 0, `every`, 2 * `every` and so on. Without it a group
 * steps in every iteration, and where that is so of all, iterations are steps. Iterations are what groups have in
 * common: a checkpoint is cut at one, over all of them, and a worker joins at one.
 *
 *     sg_client_step_every(client, 1, 5, &err);                             // group 1: the actor
 *     ...
 *     while (begin_step(critic) == SG_OK && critic.iteration < 1000) {
 *         ...                                                               // end_step(critic)
 *         if (critic.iteration % 5 == 0) ...                                // begin_step, end_step(actor)
 *     }
 *
 * So a trainer goes from iteration to iteration and steps the groups of one, alike on every worker, in the same order;
 * after an error that sg_client_goes_on it begins again with the first group of an iteration. (A thread for each group
 * need not, if no thread waits for another. In async, where steps are numbered over all workers, it goes by the number
 * of its own steps; ssp is for groups that step alike.) Errors: INVALID: `every` is not 1 to 65536, the group not below
 * 64, or the variables are declared. sg_client_declare refuses what another worker declared otherwise: MISMATCH. */
SG_API SG_MUST_USE sg_status sg_client_step_every(sg_client *client, uint32_t group, uint32_t every, sg_error *err);

/* Declares all variables of the model, once, the same list in the same order on every worker. One worker's values
 * become version 0, and when this returns every worker's `value` holds them. Where training has begun: async, it holds
 * the newest; sync, what it holds is undefined, and the values come with the worker's first step.
 * Errors: MISMATCH (another worker declared otherwise), INVALID, TIMEOUT and all of sg_client_open. */
SG_API SG_MUST_USE sg_status sg_client_declare(sg_client *client, const sg_variable *variables, size_t n_variables,
                                               sg_error *err);

/* Waits for the ticket of the next step of step->group and makes sure that the group's values are those that it is to
 * be computed on: in ssp, that they hold all that the others did up to update.staleness steps ago. The ticket of the
 * step after is asked for in the background, or with a push_pull. Waits up to start_timeout_ms for the first, then for
 * as long as the cluster lives. After SG_LATE, SG_FENCED and SG_ROLLED_BACK, of which it may hear first itself, it
 * comes again, waiting for up to start_timeout_ms without an answer of the coordinator. */
SG_API SG_MUST_USE sg_status sg_client_begin_step(sg_client *client, sg_step *step, sg_error *err);

/* Pushes the gradients of step->group with weight step->examples and brings the next values: sync, those of
 * step->number + 1, when all members have pushed; async and ssp, the newest. A gradient that holds a NaN or an infinity
 * anywhere is left out as a whole (weight 0, logged), unless the cluster says update.non_finite: apply. */
SG_API SG_MUST_USE sg_status sg_client_end_step(sg_client *client, sg_step *step, sg_error *err);

/* Whether training goes on when a call other than sg_client_begin_step, or an op, has ended so: SG_OK, and those errors
 * after which sg_client_begin_step returns the step that is to be computed next: SG_LATE, SG_ROLLED_BACK, SG_FENCED. */
SG_API bool sg_client_goes_on(sg_status status);

/* The pieces of end_step, for a trainer that sends each gradient as soon as it is ready. `variables` are indices into
 * the declared list, all of step->group; each may be pushed once per step. The step's `examples` must be final at the
 * first push. These calls do not wait; on success *op is to be destroyed by sg_op_destroy, on failure it is left alone.
 * A frozen variable cannot be pushed (INVALID); a pull brings its one version.
 * After all of a group's variables were pushed, pull brings step->number + 1 (async: the newest). Pushes of the next
 * step need that pull complete for every variable of the group.
 * A step one of whose pushes was cancelled or has failed cannot be finished: of this group values can still be pulled,
 * and a step that has begun already can be sent, but begin_step returns SG_INVALID from then on. The other workers wait
 * for what is missing until this one closes. A pull that was cancelled may be made again. */
SG_API SG_MUST_USE sg_status sg_client_push(sg_client *client, const sg_step *step, const uint32_t *variables,
                                            size_t n_variables, sg_op **op, sg_error *err);
SG_API SG_MUST_USE sg_status sg_client_pull(sg_client *client, const sg_step *step, const uint32_t *variables,
                                            size_t n_variables, sg_op **op, sg_error *err);

/* Push and pull in one: pushes these variables and brings step->number + 1 of them (async: the newest), in one message
 * each way where no other worker is waited for. The rules of sg_client_push and sg_client_pull hold; a variable's value
 * is overwritten as soon as its new one is there, so nothing may read it any more. Several such ops of a step may be
 * under way: the variables that were declared first are sent first. */
SG_API SG_MUST_USE sg_status sg_client_push_pull(sg_client *client, const sg_step *step, const uint32_t *variables,
                                                 size_t n_variables, sg_op **op, sg_error *err);

/* A part of a variable: elements [first_elem, first_elem + n_elems) in C order. It begins at a multiple of
 * sg_client_info.slice_elems, and ends at one or where the variable ends. */
typedef struct sg_range {
    uint32_t variable; /* index in the declared list */
    uint64_t first_elem, n_elems;
} sg_range;

/* sg_client_push_pull for parts of variables, so that the first elements of a large one may travel while the gradients
 * of the others are computed. Of a variable the elements of each slice may be pushed once per step; after parts that
 * together are all of it, the variable is pushed. INVALID, and nothing is sent, for a part that is empty, has other
 * bounds, or has elements that were pushed at this step or stand in the list twice. */
SG_API SG_MUST_USE sg_status sg_client_push_pull_ranges(sg_client *client, const sg_step *step, const sg_range *ranges,
                                                        size_t n_ranges, sg_op **op, sg_error *err);

/* Waits until the op is complete or timeout_ms have passed (0: looks only; UINT64_MAX: no limit). SG_TIMEOUT: it is not
 * complete and goes on; the message says for whom it waits. SG_WAITING: it goes on, too, but not before another
 * variable of the same step is pushed, which the message names: a ps has no room for more (contribution_bytes), and all
 * workers wait for that one. May be called again and from several threads. */
SG_API SG_MUST_USE sg_status sg_op_wait(sg_op *op, uint64_t timeout_ms, sg_error *err);
/* Waits until the op is complete, gives its buffers back and frees it. NULL is fine. */
SG_API void sg_op_destroy(sg_op *op);
/* Ends the op with SG_CANCELLED as soon as the transport allows. A push that was cancelled may have counted. */
SG_API void sg_op_cancel(sg_op *op);

typedef struct sg_client_info {
    uint64_t incarnation, generation;
    uint32_t live_workers; /* as of the last heartbeat, this one included; 0: none was answered since sg_client_rest */
    uint32_t n_ps;
    bool sync;        /* false: async or ssp */
    const char *mode; /* "sync", "async" or "ssp"; static storage */
    uint64_t pushed_bytes, pulled_bytes;
    uint64_t non_finite;  /* contributions of this client that counted with weight 0 */
    uint64_t slice_elems; /* of a variable; its last slice may be shorter. 0 before the variables are declared */
} sg_client_info;
SG_API void sg_client_get_info(sg_client *client, sg_client_info *info);

/* Says that this worker begins no more steps, though it may still pull: in ssp the others do not wait for it any more.
 * begin_step returns SG_INVALID from then on, until the job goes back or on without it (sg_client_goes_on). A trainer
 * that stays after its last step, to evaluate or to wait for the others, calls it; one that closes the client need not.
 */
SG_API void sg_client_rest(sg_client *client);

/* Makes every call that waits now or later return SG_CANCELLED, sg_client_close excepted. May be called from a signal
 * handling thread (not from a signal handler). */
SG_API void sg_client_interrupt(sg_client *client);

/* Says goodbye (waiting a moment, at most 2 s, for pushes under way), stops the threads, frees. All ops must have been
 * destroyed. The values keep what was pulled last. NULL is fine. */
SG_API void sg_client_close(sg_client *client);

/* Rows [*begin, *end) of a global batch of `batch` rows that fall to rank of size. Never overlaps, leaves none out. */
SG_API void sg_step_rows(const sg_step *step, uint64_t batch, uint64_t *begin, uint64_t *end);

/* Version of the library, "0.1.0". Static storage. */
SG_API const char *sg_library_version(void);

#ifdef __cplusplus
}
#endif

#endif
