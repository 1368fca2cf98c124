/* worker/nn/tape.c - tensors and steps of a pass, kept as lists in the arena in the order in which they were made.
 *
 * Going back visits the steps in the opposite order, so when a step is reached all that use its output have added
 * their part. Where a loss does not lead, no gradient was written in this backward pass, and the step is skipped. A
 * variable is final when all steps that use it have been gone back over, which it counts; while the last one of them
 * writes its gradient, the part that is written is.
 *
 * What a step does for its variables alone is put off for two steps: so the first steps of a pass are finished last,
 * but in their own order. The variables that the next forward pass reads first are then not the last to be final, and
 * while they travel there is something left to compute. Putting off more would begin to send later. */
#include "worker/nn/tape.h"

#include <stdlib.h>
#include <string.h>

/* With more, those of the past are dropped: batches of ever other sizes must not take ever more memory. */
#define MAX_CONV_PLANS ((size_t)512)

typedef struct variable {
    sg_tensor tensor; /* first: what others have of it */
    struct variable *earlier;
    void *host_value, *host_gradient; /* of its user; the tensor's own where there is no device */
    size_t n_brought;                 /* elements of the value that were sent to the device in this pass */
    size_t n_uses;                    /* by steps */
    size_t n_wanted;                  /* uses that this backward pass has not been gone back over yet */
    size_t n_told;                    /* elements that were said to be final in this backward pass */
} variable;

typedef struct listener {
    sg_tape_final_fn fn; /* NULL: nobody wants to know, since other backward passes may follow */
    void *user;
} listener;

typedef struct reads {
    sg_tape_read_fn before; /* NULL: all values are there */
    void *user;
} reads;

typedef struct step {
    struct step *earlier;
    sg_tensor *output;
    sg_tape_backward_fn backward, backward_variables;
    const void *state;
    variable **variables; /* [n_variables] those among its inputs that have a gradient */
    size_t n_variables;
} step;

/* A gradient that is free for another. */
typedef struct spare {
    struct spare *next;
    void *gradient;
    size_t n_elems;
} spare;

/* A part of a variable's gradient on its way from the device: who listens hears of it when it is there. */
typedef struct arrival {
    struct arrival *next;
    variable *variable;
    size_t first, n_elems;
    uint64_t download;
} arrival;

struct sg_tape {
    spare *spares; /* of this pass over the tape */
    const sg_kernel *kernel;
    const sg_kernel_device *device; /* of the kernel; NULL: the host */
    sg_arena *arena;                /* of what the host reads and writes */
    sg_arena *data;                 /* of elements: the same, or the device's */
    const sg_conv_planner *planner; /* of the kernel; NULL: convolutions have no plans */
    void *conv_plans;
    void *scratch;                            /* [scratch_bytes], of this pass; NULL: none yet */
    size_t scratch_bytes, most_scratch_bytes; /* the latter: of all passes */
    step *last_step;
    variable *last_variable;
    uint32_t backward_pass; /* number of the backward pass under way, or of the last one since begin */
    bool had_last;          /* that was the last one, by the user's word */
    reads reads;
    listener listener; /* of the backward pass under way */
    arrival *arrivals; /* the oldest; the newest is at the end */
    arrival **arrivals_end;
    sg_error error; /* code SG_OK: none */
};

sg_tape *sg_tape_create(const sg_kernel *kernel)
{
    sg_tape *tape = sg_xcalloc(1, sizeof *tape);
    tape->kernel = kernel;
    tape->device = kernel->device;
    tape->arena = sg_arena_create(NULL);
    tape->data = tape->device ? sg_arena_create(tape->device) : tape->arena;
    tape->conv_plans = kernel->conv->planner ? kernel->conv->planner->create() : NULL;
    tape->planner = tape->conv_plans ? kernel->conv->planner : NULL;
    return tape;
}

void sg_tape_destroy(sg_tape *tape)
{
    if (!tape)
        return;
    if (tape->data != tape->arena)
        sg_arena_destroy(tape->data);
    if (tape->planner)
        tape->planner->destroy(tape->conv_plans);
    sg_arena_destroy(tape->arena);
    free(tape);
}

/* Keeps the device's failure, if it had one, as the pass's. */
static bool device_works(sg_tape *tape)
{
    const char *failure = tape->device ? tape->device->failure() : NULL;
    if (failure)
        sg_tape_fail(tape, SG_INTERNAL, "%s: the device failed: %s; start again", tape->kernel->name, failure);
    return failure == NULL;
}

static void drop_many_plans(sg_tape *tape)
{
    if (!tape->planner || tape->planner->count(tape->conv_plans) <= MAX_CONV_PLANS)
        return;
    tape->planner->destroy(tape->conv_plans);
    tape->conv_plans = tape->planner->create();
    if (!tape->conv_plans)
        tape->planner = NULL;
}

sg_conv_plan *sg_tape_conv_plan(sg_tape *tape, const sg_conv_shape *shape)
{
    return tape->planner ? tape->planner->find(tape->conv_plans, shape) : NULL;
}

void sg_tape_begin(sg_tape *tape)
{
    sg_arena_reset(tape->arena);
    if (tape->data != tape->arena)
        sg_arena_reset(tape->data);
    drop_many_plans(tape);
    tape->scratch = NULL;
    tape->scratch_bytes = 0;
    tape->spares = NULL;
    tape->last_step = NULL;
    tape->last_variable = NULL;
    tape->backward_pass = 0;
    tape->had_last = false;
    tape->reads = (reads){0};
    tape->arrivals = NULL;
    tape->arrivals_end = &tape->arrivals;
    tape->error.code = SG_OK;
    if (tape->device && device_works(tape))
        tape->device->fence();
}

void sg_tape_listen_to_reads(sg_tape *tape, sg_tape_read_fn before_read, void *user)
{
    tape->reads = (reads){.before = before_read, .user = user};
}

const sg_kernel *sg_tape_kernel(const sg_tape *tape)
{
    return tape->kernel;
}

sg_arena_stats sg_tape_get_stats(const sg_tape *tape)
{
    sg_arena_stats stats = sg_arena_get_stats(tape->data);
    if (tape->data != tape->arena)
        stats.allocations += sg_arena_get_stats(tape->arena).allocations;
    return stats;
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

static void *alloc_in(sg_tape *tape, sg_arena *arena, size_t n_bytes)
{
    if (tape->error.code != SG_OK)
        return NULL;
    void *bytes = sg_arena_try_alloc(arena, n_bytes);
    return bytes ? bytes
                 : sg_tape_fail(tape, SG_EXHAUSTED, "no memory%s for %zu bytes of a forward pass; use a smaller batch",
                                tape->device && arena == tape->data ? " on the device" : "", n_bytes);
}

void *sg_tape_note(sg_tape *tape, size_t n_bytes)
{
    return alloc_in(tape, tape->arena, n_bytes);
}

void *sg_tape_alloc(sg_tape *tape, size_t n_bytes)
{
    return alloc_in(tape, tape->data, n_bytes);
}

const void *sg_tape_bring(sg_tape *tape, const void *from_host, size_t n_bytes)
{
    if (!tape->device)
        return from_host;
    void *bytes = sg_tape_alloc(tape, n_bytes);
    if (bytes)
        tape->device->upload(bytes, from_host, n_bytes);
    return bytes;
}

/* As large as any pass needed it, at once: so only the first pass makes it several times. */
void *sg_tape_scratch(sg_tape *tape, size_t n_bytes)
{
    if (tape->most_scratch_bytes < n_bytes)
        tape->most_scratch_bytes = n_bytes;
    if (tape->error.code == SG_OK && (!tape->scratch || tape->scratch_bytes < n_bytes)) {
        tape->scratch = sg_tape_alloc(tape, tape->most_scratch_bytes);
        tape->scratch_bytes = tape->most_scratch_bytes;
    }
    return tape->error.code == SG_OK ? tape->scratch : NULL;
}

/* Sends the device what of the first n_elems of a variable it lacks. */
static void bring_value(sg_tape *tape, variable *v, size_t n_elems)
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
        bring_value(tape, (variable *)(uintptr_t)input, first + n_elems); /* the tape's own tensor */
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
    variable *added = make_tensor(tape, sizeof *added, rank, shape);
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
    return tensor;
}

/* Notes which of the inputs are variables. */
static void note_uses(sg_tape *tape, step *s, const sg_tape_layer *layer)
{
    s->variables = sg_tape_note(tape, layer->n_inputs * sizeof(variable *));
    for (size_t i = 0; s->variables && i < layer->n_inputs; i++) {
        if (!layer->inputs[i]->is_variable || !layer->inputs[i]->needs_gradient)
            continue;
        variable *v = (variable *)layer->inputs[i];
        v->n_uses++;
        s->variables[s->n_variables++] = v;
    }
}

/* Is this output recorded by the step before, too? */
static bool shares_output(const step *earlier, const sg_tensor *output)
{
    return earlier && earlier->output == output;
}

void sg_tape_record(sg_tape *tape, const sg_tape_layer *layer)
{
    if (!layer->output || !layer->output->needs_gradient)
        return;
    SG_ASSERT(!shares_output(tape->last_step, layer->output) || !layer->backward_variables);
    step *added = sg_tape_note(tape, sizeof *added);
    void *copy = sg_tape_note(tape, layer->state_bytes);
    if (!added || !copy)
        return;
    if (layer->state_bytes > 0)
        memcpy(copy, layer->state, layer->state_bytes);
    *added = (step){.earlier = tape->last_step,
                    .output = layer->output,
                    .backward = layer->backward,
                    .backward_variables = layer->backward_variables,
                    .state = copy};
    note_uses(tape, added, layer);
    tape->last_step = added;
}

/* Memory for the gradient of so many elements: of a tensor of this size whose step is gone back over, if there is one.
 * So gradients take what those take that are needed at once, not as much as the values. */
static void *make_gradient(sg_tape *tape, size_t n_elems)
{
    for (spare **place = &tape->spares; *place; place = &(*place)->next) {
        spare *found = *place;
        if (found->n_elems != n_elems)
            continue;
        *place = found->next;
        return found->gradient;
    }
    return sg_tape_alloc(tape, n_elems * tape->kernel->elem_bytes);
}

/* The gradient of a tensor whose last step has been gone back over: nobody reads it any more. */
static void give_gradient_back(sg_tape *tape, sg_tensor *output)
{
    spare *given = output->gradient ? sg_tape_note(tape, sizeof *given) : NULL;
    if (!given)
        return;
    *given = (spare){.next = tape->spares, .gradient = output->gradient, .n_elems = output->n_elems};
    tape->spares = given;
    output->gradient = NULL;
}

void *sg_tape_gradient(sg_tape *tape, sg_tensor *input, bool *accumulate)
{
    if (!input->needs_gradient)
        return NULL;
    if (!input->gradient)
        input->gradient = make_gradient(tape, input->n_elems);
    if (!input->gradient)
        return NULL;
    /* Variables sum over the backward passes; what lies between belongs to one pass. */
    *accumulate = input->is_variable ? input->written_in != 0 : input->written_in == tape->backward_pass;
    if (!*accumulate)
        input->written_in = tape->backward_pass;
    return input->gradient;
}

void sg_tape_pass_gradient(sg_tape *tape, sg_tensor *output, sg_tensor *input)
{
    if (!input->needs_gradient)
        return;
    bool accumulate;
    if (!input->is_variable && input->written_in != tape->backward_pass) { /* nothing has come to it in this pass */
        void *free_buffer = input->gradient;
        input->gradient = output->gradient;
        input->written_in = tape->backward_pass;
        output->gradient = free_buffer;
        return;
    }
    void *gradient = sg_tape_gradient(tape, input, &accumulate);
    if (gradient)
        tape->kernel->scaled(output->n_elems, 1, output->gradient, accumulate, gradient);
}

/* Lets elements [first, first + n_elems) come to where the variable's user wants them. */
static void fetch(sg_tape *tape, variable *v, size_t first, size_t n_elems)
{
    const size_t elem_bytes = tape->kernel->elem_bytes;
    arrival *added = sg_tape_note(tape, sizeof *added);
    if (!added)
        return;
    *added = (arrival){.variable = v, .first = first, .n_elems = n_elems};
    added->download =
        tape->device->download((char *)v->host_gradient + first * elem_bytes,
                               (const char *)v->tensor.gradient + first * elem_bytes, n_elems * elem_bytes);
    *tape->arrivals_end = added;
    tape->arrivals_end = &added->next;
}

/* Tells who listens what has arrived by now; or waits for all, and after a failure tells nobody. */
static void receive(sg_tape *tape, bool all)
{
    for (arrival *a = tape->arrivals; a && (all || tape->device->is_over(a->download)); a = tape->arrivals) {
        tape->device->wait(a->download);
        tape->arrivals = a->next;
        if (tape->listener.fn && device_works(tape) && tape->error.code == SG_OK)
            tape->listener.fn(tape->listener.user, &a->variable->tensor, a->first, a->n_elems);
    }
    if (!tape->arrivals)
        tape->arrivals_end = &tape->arrivals;
}

/* The first n_elems of it are final. */
static void tell(sg_tape *tape, variable *v, size_t n_elems)
{
    const size_t first = v->n_told;
    v->n_told = n_elems;
    if (tape->device)
        fetch(tape, v, first, n_elems - first);
    else if (tape->listener.fn)
        tape->listener.fn(tape->listener.user, &v->tensor, first, n_elems - first);
}

void sg_tape_part_written(sg_tape *tape, sg_tensor *written, size_t n_elems)
{
    SG_ASSERT(written->is_variable && n_elems <= written->n_elems);
    variable *v = (variable *)written;
    if (v->n_wanted == 1 && n_elems > v->n_told && n_elems < written->n_elems)
        tell(tape, v, n_elems);
}

/* Nothing will be added to its gradient in this backward pass: it is zero if nothing was. */
static void conclude(sg_tape *tape, variable *v)
{
    bool accumulate;
    void *gradient = sg_tape_gradient(tape, &v->tensor, &accumulate);
    if (!gradient)
        return;
    if (!accumulate)
        tape->kernel->fill(v->tensor.n_elems, 0, gradient);
    tell(tape, v, v->tensor.n_elems);
}

/* The second half of going back over a step. */
static void finish_step(sg_tape *tape, const step *s)
{
    if (s->backward_variables && s->output->written_in == tape->backward_pass && tape->error.code == SG_OK)
        s->backward_variables(tape, s->state, s->output);
    if (!shares_output(s->earlier, s->output))
        give_gradient_back(tape, s->output);
    for (size_t i = 0; i < s->n_variables && tape->error.code == SG_OK; i++)
        if (--s->variables[i]->n_wanted == 0)
            conclude(tape, s->variables[i]);
}

static void go_back(sg_tape *tape)
{
    for (variable *v = tape->last_variable; v; v = v->earlier) {
        v->n_wanted = v->n_uses;
        v->n_told = 0;
    }
    const step *newest = NULL, *before = NULL; /* gone back over by half */
    for (const step *s = tape->last_step; s && tape->error.code == SG_OK; s = s->earlier) {
        if (s->output->written_in == tape->backward_pass)
            s->backward(tape, s->state, s->output);
        const step *due = s->backward_variables ? before : s;
        if (due)
            finish_step(tape, due);
        if (tape->device)
            receive(tape, false);
        if (s->backward_variables) {
            before = newest;
            newest = s;
        }
    }
    if (newest)
        finish_step(tape, newest);
    if (before)
        finish_step(tape, before);
    for (variable *v = tape->last_variable; v && tape->error.code == SG_OK; v = v->earlier)
        if (v->n_uses == 0)
            conclude(tape, v);
}

static sg_status backward(sg_tape *tape, const sg_tensor *loss, listener to, sg_error *err)
{
    if (!loss)
        sg_tape_fail(tape, SG_INVALID, "no loss to go back from");
    else if (loss->n_elems != 1)
        sg_tape_fail(tape, SG_INVALID, "a loss has %zu elements; going back starts from one number", loss->n_elems);
    else if (tape->had_last)
        sg_tape_fail(tape, SG_INVALID, "a backward pass after the last one; wanted sg_tape_begin before it");
    if (!loss || tape->error.code != SG_OK)
        return sg_tape_check(tape, err);
    tape->backward_pass++;
    tape->had_last = to.fn != NULL;
    tape->listener = to;
    bool accumulate = false;
    sg_tensor *seed = (sg_tensor *)(uintptr_t)loss; /* the tape's own tensor */
    void *gradient = sg_tape_gradient(tape, seed, &accumulate);
    if (gradient)
        tape->kernel->fill(1, 1, gradient);
    go_back(tape);
    if (tape->device) {
        receive(tape, true);
        device_works(tape);
    }
    return sg_tape_check(tape, err);
}

sg_status sg_tape_backward(sg_tape *tape, const sg_tensor *loss, sg_error *err)
{
    return backward(tape, loss, (listener){0}, err);
}

sg_status sg_tape_backward_last(sg_tape *tape, const sg_tensor *loss, sg_tape_final_fn on_final, void *user,
                                sg_error *err)
{
    return backward(tape, loss, (listener){.fn = on_final, .user = user}, err);
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
