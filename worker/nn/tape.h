/* worker/nn/tape.h - records a forward pass and runs it backwards.
 *
 *     sg_tape *tape = sg_tape_create(sg_kernel_cpu());
 *     for (...) {
 *         sg_tape_begin(tape);
 *         sg_tensor *x = sg_tape_input(tape, batch->inputs, 2, (uint64_t[]){batch->n_rows, 784});
 *         sg_tensor *w = sg_tape_variable(tape, weight, weight_grad, 2, (uint64_t[]){784, 10});
 *         sg_tensor *b = sg_tape_variable(tape, bias, bias_grad, 1, (uint64_t[]){10});
 *         sg_tensor *logits = sg_dense_forward(tape, x, w, b, SG_DENSE_LINEAR);
 *         sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, logits, batch->labels, batch->n_rows);
 *         if (sg_tape_backward(tape, loss, &err) != SG_OK)         // fills weight_grad and bias_grad
 *             ...
 *         printf("%f\n", sg_tape_get(tape, loss, 0));
 *     }
 *     sg_tape_destroy(tape);
 *
 * Layers (layers.h) compute at once and note on the tape how to go back. A pass that is only wanted forwards
 * (evaluation) just leaves out sg_tape_backward.
 *
 * Errors stick: the first failure of a pass (shapes that do not fit, no memory) is kept, every function that makes a
 * tensor returns NULL from then on and accepts NULL, and sg_tape_backward or sg_tape_check reports it.
 *
 * Memory: tensors and what layers keep lie in an arena, valid until the next sg_tape_begin. When the sizes of a pass
 * have been seen before, it allocates nothing. Elements are the kernel table's: float or double. Where the table has a
 * device, all elements lie there: the values of inputs and variables are brought there when a layer is about to read
 * them, the gradients of variables are brought back when they are final, and both go on while the device computes. What
 * the tape was given, and what it fills, are buffers of the host all the same.
 *
 * Gradients: no gradient is computed for what needs none (inputs, frozen variables, and whatever depends on these
 * alone). A backward pass adds to the gradients of earlier ones since sg_tape_begin, so a step may have several
 * losses; the first overwrites what the buffers held before. A variable on the tape that no loss depends on gets zeros;
 * running statistics (sg_batch_norm_forward) get what they should become.
 * sg_tape_backward_last says of each variable when its gradient, or a part of it, is final, so that it can be sent
 * while the rest is still computed. What is trained against each other (two groups) goes back with
 * sg_tape_backward_of, or has a pass each, in which the other's variables are frozen.
 *
 * Threads: one user at a time; any number of tapes. */
#ifndef SG_WORKER_NN_TAPE_H
#define SG_WORKER_NN_TAPE_H

#include "common/status.h"
#include "kernels/kernel.h"
#include "shardgrad/client.h"
#include "worker/nn/arena.h"

typedef struct sg_tape sg_tape;

/* Read only, for everyone but the tape. */
typedef struct sg_tensor {
    uint32_t rank;
    uint64_t shape[SG_MAX_RANK];
    size_t n_elems;
    void *value;    /* [n_elems], like gradient where the kernel table works: on its device, if it has one */
    void *gradient; /* [n_elems]; NULL where there is none (yet), or, of a layer's result, none any more */
    size_t block;   /* of the channels, in value and gradient: blocks.h; 0: C order. Inputs and variables are in that */
    bool needs_gradient;
    bool is_variable;
    struct sg_tensor *view_of; /* the variable whose value this is, too; NULL: none */
    uint32_t written_in;       /* number of the backward pass that wrote the gradient first; 0: none yet */
    uint32_t chosen_in;        /* number of the last sg_tape_backward_of that wants the gradient; 0: none yet */
    size_t tag;                /* of a variable, for its maker: the tape does not look at it */
} sg_tensor;

/* The table must outlive the tape. Freed by sg_tape_destroy. */
sg_tape *sg_tape_create(const sg_kernel *kernel);
void sg_tape_destroy(sg_tape *tape); /* NULL is fine */

/* Forgets the last pass, its tensors and its error. */
void sg_tape_begin(sg_tape *tape);

/* For values that come later than the pass begins: until the next sg_tape_begin, `before_read` is called right before
 * a layer reads elements [first, first + n_elems) of a variable's value. Mostly these are all; a large one may be read
 * in parts, from its first element to its last. Each layer that reads it asks anew. A failure becomes the pass's. */
typedef sg_status (*sg_tape_read_fn)(void *user, const sg_tensor *variable, size_t first, size_t n_elems,
                                     sg_error *err);
void sg_tape_listen_to_reads(sg_tape *tape, sg_tape_read_fn before_read, void *user);

/* Memory of the caller that holds data; must stay as it is until the pass is over. No gradient. */
sg_tensor *sg_tape_input(sg_tape *tape, const void *value, uint32_t rank, const uint64_t *shape);
/* A variable; gradient NULL: frozen. To use one twice, use the tensor twice: the gradients add up. */
sg_tensor *sg_tape_variable(sg_tape *tape, void *value, void *gradient, uint32_t rank, const uint64_t *shape);

/* Fills the gradients of all variables that `loss` (one element) depends on. Returns the pass's first failure. */
SG_MUST_USE sg_status sg_tape_backward(sg_tape *tape, const sg_tensor *loss, sg_error *err);
/* The same for the last loss since sg_tape_begin: no other backward pass may follow. Elements [first, first + n_elems)
 * of each variable that has a gradient are handed to `on_final` as soon as their gradients are final and this pass
 * reads their values no more: both may be overwritten then. Mostly that is a variable as a whole; a large one may come
 * in parts, from its first element to its last, none left out and none twice. The variables of the last layers come
 * first; those of the first two at the end, in their own order. The gradients are in the buffer that the variable was
 * made with. on_final may not use the tape. After a failure the rest is not handed out. */
typedef void (*sg_tape_final_fn)(void *user, const sg_tensor *variable, size_t first, size_t n_elems);
SG_MUST_USE sg_status sg_tape_backward_last(sg_tape *tape, const sg_tensor *loss, sg_tape_final_fn on_final, void *user,
                                            sg_error *err);
/* With respect to these variables, which have gradients, alone: those of all others stay as they are, and work that
 * would only lead to them is left out. For what is trained against each other: one pass forwards, then a loss and a
 * backward pass for each group, before the values of any of them change. */
SG_MUST_USE sg_status sg_tape_backward_of(sg_tape *tape, const sg_tensor *loss, sg_tensor *const *variables,
                                          size_t n_variables, sg_error *err);
/* The pass's first failure so far; SG_OK if there is none. */
SG_MUST_USE sg_status sg_tape_check(const sg_tape *tape, sg_error *err);
/* One element of a tensor's value; 0 if tensor is NULL. */
double sg_tape_get(const sg_tape *tape, const sg_tensor *tensor, size_t index);
sg_arena_stats sg_tape_get_stats(const sg_tape *tape);

/* --- for those who write layers -------------------------------------------------------------------------------- */

const sg_kernel *sg_tape_kernel(const sg_tape *tape);

/* Keeps the first failure of the pass. Returns NULL, so that a layer can say `return sg_tape_fail(...)`. */
void *sg_tape_fail(sg_tape *tape, sg_status code, const char *format, ...) SG_PRINTF(3, 4);

/* A tensor for a layer's result, value not filled in, in C order; NULL after a failure. */
sg_tensor *sg_tape_output(sg_tape *tape, uint32_t rank, const uint64_t *shape, bool needs_gradient);
/* One of the shape of x that has its elements in the same order. */
sg_tensor *sg_tape_output_like(sg_tape *tape, const sg_tensor *x, bool needs_gradient);
/* The same with the value of x, not a copy of it: in the order that x has. */
sg_tensor *sg_tape_view(sg_tape *tape, const sg_tensor *x, uint32_t rank, const uint64_t *shape);
/* A layer's first function asks so before it reads these elements of an input's value, which may come only now. False
 * after a failure. */
bool sg_tape_may_read(sg_tape *tape, const sg_tensor *input, size_t first, size_t n_elems);
/* Memory until the next sg_tape_begin, 64-byte aligned, not zeroed; NULL after a failure. */
void *sg_tape_alloc(sg_tape *tape, size_t n_bytes);
/* The same for what is no element of a tensor: always the host's memory, where that of sg_tape_alloc is the table's. */
void *sg_tape_note(sg_tape *tape, size_t n_bytes);
/* Bytes of the host for a kernel to read: the same, or on a device a copy of them that lives as long as the pass. They
 * must stay as they are until that is over. NULL after a failure. */
const void *sg_tape_bring(sg_tape *tape, const void *from_host, size_t n_bytes);
/* The way back: elements for the host to read, the same memory, or on a device a copy, for which it waits until all
 * that was begun is done. NULL after a failure. */
const void *sg_tape_take(sg_tape *tape, const void *elems, size_t n_bytes);
/* Like sg_tape_alloc, until the next call of this function: for what a kernel needs while it computes. */
void *sg_tape_scratch(sg_tape *tape, size_t n_bytes);

/* The plan that the kernel table has for a convolution, kept from pass to pass; NULL: C order, without one. */
sg_conv_plan *sg_tape_conv_plan(sg_tape *tape, const sg_conv_shape *shape);

/* How to go back over a layer: called when the gradient of `output` is final, with a pointer to the copy of `state`
 * that the tape keeps. It adds to the gradients of the layer's inputs and may overwrite output->gradient. */
typedef void (*sg_tape_backward_fn)(sg_tape *tape, const void *state, sg_tensor *output);
typedef struct sg_tape_layer {
    sg_tensor *output;
    sg_tensor *const *inputs; /* [n_inputs]: all whose value or gradient a backward function touches */
    size_t n_inputs;
    sg_tape_backward_fn backward;
    /* May be NULL. The part of the work that only the gradient of `weight` needs, one of the inputs. Where that is a
     * variable it is done later, and that of the first layers last, but in the order in which the next forward pass
     * reads them; elsewhere right after `backward`. output->gradient is what `backward` left there. */
    sg_tape_backward_fn backward_weight;
    const sg_tensor *weight;
    const void *state; /* [state_bytes], copied */
    size_t state_bytes;
} sg_tape_layer;
/* A layer may have itself recorded several times with one output, one after the other, without backward_weight.
 * Nothing is noted where output needs no gradient, and backward is not called where no loss depends on it. */
void sg_tape_record(sg_tape *tape, const sg_tape_layer *layer);

/* For a layer's first function, of a variable that is no weight but a mean over batches (the update rule `average`): in
 * every backward pass, whether or not that leads to the layer, its gradient is not what is added up but this value,
 * which it should take. [n_elems] where the kernel table works, until the next sg_tape_begin. The last one proposed
 * counts. Nothing happens where `input` is no variable. */
void sg_tape_propose(sg_tensor *input, const void *value);
/* What was proposed last in this pass; where nothing was, the value. */
const void *sg_tape_proposed(const sg_tensor *input);

/* For a backward function: where to write the gradient of one of the layer's inputs, and whether to add to it or to
 * overwrite. NULL where none is needed: skip the work. */
void *sg_tape_gradient(sg_tape *tape, sg_tensor *input, bool *accumulate);

/* For the backward function of a layer that only looks at its input in another way: what came to the output comes to
 * the input. Without a copy where that is possible: the input then has the output's buffer, and the output none. */
void sg_tape_pass_gradient(sg_tape *tape, sg_tensor *output, sg_tensor *input);

/* For backward_weight, which may write the gradient of a large variable part by part: the first n_elems have been
 * written, and the layer reads their values no more. It need not be said of the last part, and changes nothing where
 * the weight is no variable. */
void sg_tape_part_written(sg_tape *tape, sg_tensor *weight, size_t n_elems);

#endif
