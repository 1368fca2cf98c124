/* worker/nn/tape_tensors.c - tensors, and how the values of variables get to where they are read. */
#include <string.h>

#include "worker/nn/tape_state.h"

void sg_tape_listen_to_reads(sg_tape *tape, sg_tape_read_fn before_read, void *user)
{
    tape->reads = (sg_tape_reads){.before = before_read, .user = user};
}

/* Sends the device what of the first n_elems of a variable it lacks. */
static void bring_value(sg_tape *tape, sg_tape_leaf *v, size_t n_elems)
{
    const size_t elem_bytes = tape->kernel->elem_bytes, first_byte = v->n_brought * elem_bytes;
    if (n_elems <= v->n_brought)
        return;
    tape->device->upload((char *)v->tensor.value + first_byte, (const char *)v->host_value + first_byte,
                         n_elems * elem_bytes - first_byte);
    v->n_brought = n_elems;
}

bool sg_tape_may_read(sg_tape *tape, const sg_tensor *input, size_t first, size_t n_elems)
{
    SG_ASSERT(n_elems <= input->n_elems && first <= input->n_elems - n_elems);
    if (tape->error.code != SG_OK || !input->is_variable)
        return tape->error.code == SG_OK;
    sg_error error;
    sg_status status = tape->reads.before ? tape->reads.before(tape->reads.user, input, first, n_elems, &error) : SG_OK;
    if (status != SG_OK)
        sg_tape_fail(tape, status, "%s", error.message);
    else if (tape->device)
        bring_value(tape, (sg_tape_leaf *)(uintptr_t)input, first + n_elems); /* the tape's own tensor */
    return status == SG_OK;
}

/* A tensor without value, at the start of n_struct_bytes of zeros. */
static void *make_tensor(sg_tape *tape, size_t n_struct_bytes, uint32_t rank, const uint64_t *shape)
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
    sg_tensor *tensor = sg_tape_note(tape, n_struct_bytes);
    if (!tensor)
        return NULL;
    memset(tensor, 0, n_struct_bytes);
    tensor->rank = rank;
    tensor->n_elems = n_elems;
    for (uint32_t i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    return tensor;
}

sg_tensor *sg_tape_input(sg_tape *tape, const void *value, uint32_t rank, const uint64_t *shape)
{
    sg_tensor *tensor = make_tensor(tape, sizeof *tensor, rank, shape);
    if (tensor) /* nobody writes the value of an input */
        tensor->value = (void *)(uintptr_t)sg_tape_bring(tape, value, tensor->n_elems * tape->kernel->elem_bytes);
    return tape->error.code == SG_OK ? tensor : NULL;
}

sg_tensor *sg_tape_variable(sg_tape *tape, void *value, void *gradient, uint32_t rank, const uint64_t *shape)
{
    sg_tape_leaf *added = make_tensor(tape, sizeof *added, rank, shape);
    if (!added)
        return NULL;
    added->host_value = value;
    added->host_gradient = gradient;
    added->tensor.value = tape->device ? sg_tape_alloc(tape, added->tensor.n_elems * tape->kernel->elem_bytes) : value;
    added->tensor.gradient = tape->device ? NULL : gradient;
    if (tape->error.code != SG_OK)
        return NULL;
    added->tensor.needs_gradient = gradient != NULL;
    added->tensor.is_variable = true;
    added->earlier = tape->last_variable;
    tape->last_variable = added;
    return &added->tensor;
}

sg_tensor *sg_tape_output(sg_tape *tape, uint32_t rank, const uint64_t *shape, bool needs_gradient)
{
    sg_tensor *tensor = make_tensor(tape, sizeof *tensor, rank, shape);
    if (!tensor)
        return NULL;
    tensor->needs_gradient = needs_gradient;
    tensor->value = sg_tape_alloc(tape, tensor->n_elems * tape->kernel->elem_bytes);
    return tensor->value ? tensor : NULL;
}

sg_tensor *sg_tape_output_like(sg_tape *tape, const sg_tensor *x, bool needs_gradient)
{
    sg_tensor *tensor = sg_tape_output(tape, x->rank, x->shape, needs_gradient);
    if (tensor)
        tensor->block = x->block;
    return tensor;
}

sg_tensor *sg_tape_view(sg_tape *tape, const sg_tensor *x, uint32_t rank, const uint64_t *shape)
{
    sg_tensor *tensor = make_tensor(tape, sizeof *tensor, rank, shape);
    if (!tensor)
        return NULL;
    tensor->needs_gradient = x->needs_gradient;
    tensor->value = x->value;
    tensor->block = x->block;
    tensor->view_of = x->is_variable ? (sg_tensor *)(uintptr_t)x : x->view_of; /* the tape's own tensor */
    return tensor;
}

double sg_tape_get(const sg_tape *tape, const sg_tensor *tensor, size_t index)
{
    if (!tensor || index >= tensor->n_elems)
        return 0;
    if (tensor->block > 0) {
        const size_t plane = tensor->shape[2] * tensor->shape[3], row = index / plane, b = tensor->block;
        index = (row / b * plane + index % plane) * b + row % b;
    }
    return tape->kernel->get(tensor->value, index);
}
