/* worker/nn/tape_state.h - what a tape consists of: shared by tape.c (life, memory, errors), tape_tensors.c (tensors
 * and their values) and tape_backward.c (the way back); nobody else looks at it. */
#ifndef SG_WORKER_NN_TAPE_STATE_H
#define SG_WORKER_NN_TAPE_STATE_H

#include "worker/nn/tape.h"

/* A variable. */
typedef struct sg_tape_leaf {
    sg_tensor tensor; /* first: what others have of it */
    struct sg_tape_leaf *earlier;
    void *host_value, *host_gradient; /* of its user; the tensor's own where there is no device */
    size_t n_brought;                 /* elements of the value that were sent to the device in this pass */
    size_t n_uses;                    /* by steps, those that read its value through a view among them */
    size_t n_wanted;                  /* uses that this backward pass has not been gone back over yet */
    const void *proposal;             /* what its gradient is to be instead of a sum; NULL: nothing was proposed */
    size_t n_told;                    /* elements that were said to be final in this backward pass */
} sg_tape_leaf;

typedef struct sg_tape_listener {
    sg_tape_final_fn fn; /* NULL: nobody wants to know, since other backward passes may follow */
    void *user;
} sg_tape_listener;

typedef struct sg_tape_reads {
    sg_tape_read_fn before; /* NULL: all values are there */
    void *user;
} sg_tape_reads;

typedef struct sg_tape_step {
    struct sg_tape_step *earlier, *later;
    sg_tensor *output;
    sg_tape_backward_fn backward, backward_weight;
    bool is_put_off; /* backward_weight is */
    const void *state;
    sg_tensor **inputs; /* [n_inputs] */
    size_t n_inputs;
    sg_tape_leaf **variables; /* [n_variables] those among its inputs, or behind them, that have a gradient */
    size_t n_variables;
} sg_tape_step;

/* A gradient that is free for another. */
typedef struct sg_tape_spare {
    struct sg_tape_spare *next;
    void *gradient;
    size_t n_elems;
} sg_tape_spare;

/* A part of a variable's gradient on its way from the device: who listens hears of it when it is there. */
typedef struct sg_tape_arrival {
    struct sg_tape_arrival *next;
    sg_tape_leaf *variable;
    size_t first, n_elems;
    uint64_t download;
} sg_tape_arrival;

struct sg_tape {
    sg_tape_spare *spares; /* of this pass over the tape */
    const sg_kernel *kernel;
    const sg_kernel_device *device; /* of the kernel; NULL: the host */
    sg_arena *arena;                /* of what the host reads and writes */
    sg_arena *data;                 /* of elements: the same, or the device's */
    const sg_conv_planner *planner; /* of the kernel; NULL: convolutions have no plans */
    void *conv_plans;
    void *scratch;                            /* [scratch_bytes], of this pass; NULL: none yet */
    size_t scratch_bytes, most_scratch_bytes; /* the latter: of all passes */
    sg_tape_step *first_step, *last_step;
    sg_tape_leaf *last_variable;
    uint32_t backward_pass; /* number of the backward pass under way, or of the last one since begin */
    bool chooses;           /* that wants the gradients of chosen tensors alone */
    bool had_last;          /* that was the last one, by the user's word */
    sg_tape_reads reads;
    sg_tape_listener listener; /* of the backward pass under way */
    sg_tape_arrival *arrivals; /* the oldest; the newest is at the end */
    sg_tape_arrival **arrivals_end;
    sg_error error; /* code SG_OK: none */
};

/* Keeps the device's failure, if it had one, as the pass's. True where there is no device. */
bool sg_tape_device_works(sg_tape *tape);

#endif
