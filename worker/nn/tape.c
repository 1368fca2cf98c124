/* worker/nn/tape.c - tensors and steps of a pass, kept as lists in the arena in the order in which they were made.
 *
 * Going back visits the steps in the opposite order, so when a step is reached all that use its output have added
 * their part. Where a loss does not lead, no gradient was written in this backward pass, and the step is skipped. The
 * gradient of a variable is final when the first step that used it has been gone back over. */
#include "worker/nn/tape.h"

#include <stdlib.h>
#include <string.h>

typedef struct step {
    struct step *earlier;
    sg_tensor *output;
    sg_tape_backward_fn backward;
    const void *state;
} step;

typedef struct variable {
    struct variable *earlier;
    sg_tensor *tensor;
} variable;

struct sg_tape {
    const sg_kernel *kernel;
    sg_arena *arena;
    step *last_step;
    variable *last_variable;
    uint32_t backward_pass; /* number of the backward pass under way, or of the last one since begin */
    sg_error error;         /* code SG_OK: none */
};

sg_tape *sg_tape_create(const sg_kernel *kernel)
{
    sg_tape *tape = sg_xcalloc(1, sizeof *tape);
    tape->kernel = kernel;
    tape->arena = sg_arena_create();
    return tape;
}

void sg_tape_destroy(sg_tape *tape)
{
    if (!tape)
        return;
    sg_arena_destroy(tape->arena);
    free(tape);
}

void sg_tape_begin(sg_tape *tape)
{
    sg_arena_reset(tape->arena);
    tape->last_step = NULL;
    tape->last_variable = NULL;
    tape->backward_pass = 0;
    tape->error.code = SG_OK;
}

const sg_kernel *sg_tape_kernel(const sg_tape *tape)
{
    return tape->kernel;
}

sg_arena_stats sg_tape_get_stats(const sg_tape *tape)
{
    return sg_arena_get_stats(tape->arena);
}

void *sg_tape_fail(sg_tape *tape, sg_status code, const char *format, ...)
{
    if (tape->error.code == SG_OK) {
        va_list args;
        va_start(args, format);
        tape->error.code = sg_error_set_v(&tape->error, code, format, args);
        va_end(args);
    }
    return NULL;
}

sg_status sg_tape_check(const sg_tape *tape, sg_error *err)
{
    if (tape->error.code != SG_OK && err)
        *err = tape->error;
    return tape->error.code;
}

void *sg_tape_alloc(sg_tape *tape, size_t n_bytes)
{
    if (tape->error.code != SG_OK)
        return NULL;
    void *bytes = sg_arena_try_alloc(tape->arena, n_bytes);
    return bytes ? bytes
                 : sg_tape_fail(tape, SG_EXHAUSTED, "no memory for %zu bytes of a forward pass; use a smaller batch",
                                n_bytes);
}

/* A tensor without value. */
static sg_tensor *make_tensor(sg_tape *tape, uint32_t rank, const uint64_t *shape)
{
    if (rank > SG_MAX_RANK)
        return sg_tape_fail(tape, SG_INVALID, "a tensor of %u dimensions; at most %d are possible", rank, SG_MAX_RANK);
    size_t n_elems = 1;
    size_t n_bytes;
    bool overflow = false;
    for (uint32_t i = 0; i < rank; i++)
        overflow = __builtin_mul_overflow(n_elems, shape[i], &n_elems) || overflow;
    if (overflow || __builtin_mul_overflow(n_elems, tape->kernel->elem_bytes, &n_bytes))
        return sg_tape_fail(tape, SG_INVALID, "a tensor with more elements than memory can hold");
    sg_tensor *tensor = sg_tape_alloc(tape, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (sg_tensor){.rank = rank, .n_elems = n_elems};
    for (uint32_t i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    return tensor;
}

sg_tensor *sg_tape_input(sg_tape *tape, const void *value, uint32_t rank, const uint64_t *shape)
{
    sg_tensor *tensor = make_tensor(tape, rank, shape);
    if (tensor)
        tensor->value = (void *)(uintptr_t)value; /* nobody writes the value of an input */
    return tensor;
}

sg_tensor *sg_tape_variable(sg_tape *tape, void *value, void *gradient, uint32_t rank, const uint64_t *shape)
{
    sg_tensor *tensor = make_tensor(tape, rank, shape);
    variable *added = tensor ? sg_tape_alloc(tape, sizeof *added) : NULL;
    if (!added)
        return NULL;
    tensor->value = value;
    tensor->gradient = gradient;
    tensor->needs_gradient = gradient != NULL;
    tensor->is_variable = true;
    *added = (variable){.earlier = tape->last_variable, .tensor = tensor};
    tape->last_variable = added;
    return tensor;
}

sg_tensor *sg_tape_output(sg_tape *tape, uint32_t rank, const uint64_t *shape, bool needs_gradient)
{
    sg_tensor *tensor = make_tensor(tape, rank, shape);
    if (!tensor)
        return NULL;
    tensor->needs_gradient = needs_gradient;
    tensor->value = sg_tape_alloc(tape, tensor->n_elems * tape->kernel->elem_bytes);
    return tensor->value ? tensor : NULL;
}

void sg_tape_record(sg_tape *tape, sg_tensor *output, sg_tape_backward_fn backward, const void *state,
                    size_t state_bytes)
{
    if (!output || !output->needs_gradient)
        return;
    step *added = sg_tape_alloc(tape, sizeof *added);
    void *copy = sg_tape_alloc(tape, state_bytes);
    if (!added || !copy)
        return;
    memcpy(copy, state, state_bytes);
    *added = (step){.earlier = tape->last_step, .output = output, .backward = backward, .state = copy};
    tape->last_step = added;
}

void *sg_tape_gradient(sg_tape *tape, sg_tensor *input, bool *accumulate)
{
    if (!input->needs_gradient)
        return NULL;
    if (!input->gradient)
        input->gradient = sg_tape_alloc(tape, input->n_elems * tape->kernel->elem_bytes);
    if (!input->gradient)
        return NULL;
    /* Variables sum over the backward passes; what lies between belongs to one pass. */
    *accumulate = input->is_variable ? input->written_in != 0 : input->written_in == tape->backward_pass;
    if (!*accumulate)
        input->written_in = tape->backward_pass;
    return input->gradient;
}

static void go_back(sg_tape *tape)
{
    for (step *s = tape->last_step; s && tape->error.code == SG_OK; s = s->earlier)
        if (s->output->written_in == tape->backward_pass)
            s->backward(tape, s->state, s->output);
}

static void zero_unwritten(sg_tape *tape)
{
    for (variable *v = tape->last_variable; v; v = v->earlier) {
        bool accumulate = true;
        void *gradient = sg_tape_gradient(tape, v->tensor, &accumulate);
        if (!accumulate)
            tape->kernel->fill(v->tensor->n_elems, 0, gradient);
    }
}

sg_status sg_tape_backward(sg_tape *tape, const sg_tensor *loss, sg_error *err)
{
    if (!loss)
        sg_tape_fail(tape, SG_INVALID, "no loss to go back from");
    else if (loss->n_elems != 1)
        sg_tape_fail(tape, SG_INVALID, "a loss has %zu elements; going back starts from one number", loss->n_elems);
    if (!loss || tape->error.code != SG_OK)
        return sg_tape_check(tape, err);
    tape->backward_pass++;
    bool accumulate = false;
    sg_tensor *seed = (sg_tensor *)(uintptr_t)loss; /* the tape's own tensor */
    void *gradient = sg_tape_gradient(tape, seed, &accumulate);
    if (gradient)
        tape->kernel->fill(1, 1, gradient);
    go_back(tape);
    zero_unwritten(tape);
    return sg_tape_check(tape, err);
}

double sg_tape_get(const sg_tape *tape, const sg_tensor *tensor, size_t index)
{
    return tensor && index < tensor->n_elems ? tape->kernel->get(tensor->value, index) : 0;
}
