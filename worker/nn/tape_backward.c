/* worker/nn/tape_backward.c - the steps of a pass, kept as a list in the arena in the order in which they were made,
 * and the way back over them.
 *
 * Going back visits the steps in the opposite order, so when a step is reached all that use its output have added
 * their part. Where a loss does not lead, no gradient was written in this backward pass, and the step is skipped. A
 * variable is final when all steps that use it have been gone back over, which it counts; while the last one of them
 * writes its gradient, the part that is written is.
 *
 * What a step does for its weight alone, if that is a variable, is put off for two steps: so the first steps of a pass
 * are finished last, but in their own order. The variables that the next forward pass reads first are then not the last
 * to be final, and while they travel there is something left to compute. Putting off more would begin to send later. */
#include <string.h>

#include "worker/nn/tape_state.h"

/* Notes which variables are among the inputs. Whoever reads a value through a view uses the variable, too, even where
 * no gradient goes through: until then it may not be overwritten. */
static void note_uses(sg_tape *tape, sg_tape_step *s, const sg_tape_layer *layer)
{
    s->variables = sg_tape_note(tape, layer->n_inputs * sizeof(sg_tape_leaf *));
    s->inputs = sg_tape_note(tape, layer->n_inputs * sizeof(sg_tensor *));
    for (size_t i = 0; s->variables && s->inputs && i < layer->n_inputs; i++) {
        s->inputs[s->n_inputs++] = layer->inputs[i];
        sg_tensor *used = layer->inputs[i]->is_variable ? layer->inputs[i] : layer->inputs[i]->view_of;
        if (!used || !used->needs_gradient)
            continue;
        sg_tape_leaf *v = (sg_tape_leaf *)used;
        v->n_uses++;
        s->variables[s->n_variables++] = v;
    }
}

/* Is this output recorded by the step before, too? */
static bool shares_output(const sg_tape_step *earlier, const sg_tensor *output)
{
    return earlier && earlier->output == output;
}

void sg_tape_record(sg_tape *tape, const sg_tape_layer *layer)
{
    if (!layer->output || !layer->output->needs_gradient)
        return;
    SG_ASSERT(!shares_output(tape->last_step, layer->output) || !layer->backward_weight);
    sg_tape_step *added = sg_tape_note(tape, sizeof *added);
    void *copy = sg_tape_note(tape, layer->state_bytes);
    if (!added || !copy)
        return;
    if (layer->state_bytes > 0)
        memcpy(copy, layer->state, layer->state_bytes);
    *added = (sg_tape_step){.earlier = tape->last_step,
                            .output = layer->output,
                            .backward = layer->backward,
                            .backward_weight = layer->backward_weight,
                            .is_put_off = layer->backward_weight && layer->weight->is_variable,
                            .state = copy};
    note_uses(tape, added, layer);
    *(tape->last_step ? &tape->last_step->later : &tape->first_step) = added;
    tape->last_step = added;
}

/* In the backward pass under way. */
static bool is_wanted(const sg_tape *tape, const sg_tensor *tensor)
{
    return tensor->needs_gradient && (!tape->chooses || tensor->chosen_in == tape->backward_pass);
}

/* Wanted are these variables, and what depends on them. */
static void choose(sg_tape *tape, sg_tensor *const *variables, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!variables[i] || !variables[i]->is_variable || !variables[i]->needs_gradient) {
            sg_tape_fail(tape, SG_INVALID, "going back to number %zu of %zu tensors; wanted variables with gradients",
                         i, n);
            return;
        }
        variables[i]->chosen_in = tape->backward_pass;
    }
    for (const sg_tape_step *s = tape->first_step; s; s = s->later)
        for (size_t i = 0; i < s->n_inputs; i++)
            if (is_wanted(tape, s->inputs[i]))
                s->output->chosen_in = tape->backward_pass;
}

/* Memory for the gradient of so many elements: of a tensor of this size whose step is gone back over, if there is one.
 * So gradients take what those take that are needed at once, not as much as the values. */
static void *make_gradient(sg_tape *tape, size_t n_elems)
{
    for (sg_tape_spare **place = &tape->spares; *place; place = &(*place)->next) {
        sg_tape_spare *found = *place;
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
    sg_tape_spare *given = output->gradient ? sg_tape_note(tape, sizeof *given) : NULL;
    if (!given)
        return;
    *given = (sg_tape_spare){.next = tape->spares, .gradient = output->gradient, .n_elems = output->n_elems};
    tape->spares = given;
    output->gradient = NULL;
}

void *sg_tape_gradient(sg_tape *tape, sg_tensor *input, bool *accumulate)
{
    if (!is_wanted(tape, input))
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
    if (!is_wanted(tape, input))
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
static void fetch(sg_tape *tape, sg_tape_leaf *v, size_t first, size_t n_elems)
{
    const size_t elem_bytes = tape->kernel->elem_bytes;
    sg_tape_arrival *added = sg_tape_note(tape, sizeof *added);
    if (!added)
        return;
    *added = (sg_tape_arrival){.variable = v, .first = first, .n_elems = n_elems};
    added->download =
        tape->device->download((char *)v->host_gradient + first * elem_bytes,
                               (const char *)v->tensor.gradient + first * elem_bytes, n_elems * elem_bytes);
    *tape->arrivals_end = added;
    tape->arrivals_end = &added->next;
}

/* Tells who listens what has arrived by now; or waits for all, and after a failure tells nobody. */
static void receive(sg_tape *tape, bool all)
{
    for (sg_tape_arrival *a = tape->arrivals; a && (all || tape->device->is_over(a->download)); a = tape->arrivals) {
        tape->device->wait(a->download);
        tape->arrivals = a->next;
        if (tape->listener.fn && sg_tape_device_works(tape) && tape->error.code == SG_OK)
            tape->listener.fn(tape->listener.user, &a->variable->tensor, a->first, a->n_elems);
    }
    if (!tape->arrivals)
        tape->arrivals_end = &tape->arrivals;
}

/* The first n_elems of it are final. */
static void tell(sg_tape *tape, sg_tape_leaf *v, size_t n_elems)
{
    const size_t first = v->n_told;
    v->n_told = n_elems;
    if (tape->device)
        fetch(tape, v, first, n_elems - first);
    else if (tape->listener.fn)
        tape->listener.fn(tape->listener.user, &v->tensor, first, n_elems - first);
}

void sg_tape_part_written(sg_tape *tape, sg_tensor *weight, size_t n_elems)
{
    SG_ASSERT(n_elems <= weight->n_elems);
    sg_tape_leaf *v = weight->is_variable ? (sg_tape_leaf *)weight : NULL;
    if (v && v->n_wanted == 1 && n_elems > v->n_told && n_elems < weight->n_elems)
        tell(tape, v, n_elems);
}

void sg_tape_propose(sg_tensor *input, const void *value)
{
    if (input->is_variable)
        ((sg_tape_leaf *)input)->proposal = value;
}

const void *sg_tape_proposed(const sg_tensor *input)
{
    const void *proposal = input->is_variable ? ((const sg_tape_leaf *)input)->proposal : NULL;
    return proposal ? proposal : input->value;
}

/* Nothing will be added to its gradient in this backward pass: it is zero if nothing was. */
static void conclude(sg_tape *tape, sg_tape_leaf *v)
{
    bool accumulate;
    void *gradient = sg_tape_gradient(tape, &v->tensor, &accumulate);
    if (!gradient)
        return;
    if (v->proposal)
        tape->kernel->scaled(v->tensor.n_elems, 1, v->proposal, false, gradient);
    else if (!accumulate)
        tape->kernel->fill(v->tensor.n_elems, 0, gradient);
    tell(tape, v, v->tensor.n_elems);
}

/* The second half of going back over a step. */
static void finish_step(sg_tape *tape, const sg_tape_step *s)
{
    if (s->backward_weight && s->output->written_in == tape->backward_pass && tape->error.code == SG_OK)
        s->backward_weight(tape, s->state, s->output);
    if (!shares_output(s->earlier, s->output))
        give_gradient_back(tape, s->output);
    for (size_t i = 0; i < s->n_variables && tape->error.code == SG_OK; i++)
        if (--s->variables[i]->n_wanted == 0)
            conclude(tape, s->variables[i]);
}

static void go_back(sg_tape *tape)
{
    for (sg_tape_leaf *v = tape->last_variable; v; v = v->earlier) {
        v->n_wanted = v->n_uses;
        v->n_told = 0;
    }
    const sg_tape_step *newest = NULL, *before = NULL; /* gone back over by half */
    for (const sg_tape_step *s = tape->last_step; s && tape->error.code == SG_OK; s = s->earlier) {
        if (s->output->written_in == tape->backward_pass)
            s->backward(tape, s->state, s->output);
        const sg_tape_step *due = s->is_put_off ? before : s;
        if (due)
            finish_step(tape, due);
        if (tape->device)
            receive(tape, false);
        if (s->is_put_off) {
            before = newest;
            newest = s;
        }
    }
    if (newest)
        finish_step(tape, newest);
    if (before)
        finish_step(tape, before);
    for (sg_tape_leaf *v = tape->last_variable; v && tape->error.code == SG_OK; v = v->earlier)
        if (v->n_uses == 0)
            conclude(tape, v);
}

/* Whether a backward pass may begin; if so, it has. */
static bool begin_backward(sg_tape *tape, const sg_tensor *loss)
{
    if (!loss)
        sg_tape_fail(tape, SG_INVALID, "no loss to go back from");
    else if (loss->n_elems != 1)
        sg_tape_fail(tape, SG_INVALID, "a loss has %zu elements; going back starts from one number", loss->n_elems);
    else if (tape->had_last)
        sg_tape_fail(tape, SG_INVALID, "a backward pass after the last one; wanted sg_tape_begin before it");
    if (!loss || tape->error.code != SG_OK)
        return false;
    tape->backward_pass++;
    tape->chooses = false;
    tape->listener = (sg_tape_listener){0};
    return true;
}

static sg_status backward(sg_tape *tape, const sg_tensor *loss, sg_error *err)
{
    bool accumulate = false;
    sg_tensor *seed = (sg_tensor *)(uintptr_t)loss; /* the tape's own tensor */
    void *gradient = sg_tape_gradient(tape, seed, &accumulate);
    if (gradient)
        tape->kernel->fill(1, 1, gradient);
    go_back(tape);
    if (tape->device) {
        receive(tape, true);
        sg_tape_device_works(tape);
    }
    return sg_tape_check(tape, err);
}

sg_status sg_tape_backward(sg_tape *tape, const sg_tensor *loss, sg_error *err)
{
    return begin_backward(tape, loss) ? backward(tape, loss, err) : sg_tape_check(tape, err);
}

sg_status sg_tape_backward_last(sg_tape *tape, const sg_tensor *loss, sg_tape_final_fn on_final, void *user,
                                sg_error *err)
{
    if (!begin_backward(tape, loss))
        return sg_tape_check(tape, err);
    tape->had_last = on_final != NULL;
    tape->listener = (sg_tape_listener){.fn = on_final, .user = user};
    return backward(tape, loss, err);
}

sg_status sg_tape_backward_of(sg_tape *tape, const sg_tensor *loss, sg_tensor *const *variables, size_t n_variables,
                              sg_error *err)
{
    if (!begin_backward(tape, loss))
        return sg_tape_check(tape, err);
    tape->chooses = true;
    choose(tape, variables, n_variables);
    return sg_tape_check(tape, NULL) == SG_OK ? backward(tape, loss, err) : sg_tape_check(tape, err);
}
