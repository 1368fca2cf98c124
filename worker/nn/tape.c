/* worker/nn/tape.c - a tape's life, memory and errors. */
#include <stdlib.h>

#include "worker/nn/tape_state.h"

/* With more, those of the past are dropped: batches of ever other sizes must not take ever more memory. */
#define MAX_CONV_PLANS ((size_t)512)

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

bool sg_tape_device_works(sg_tape *tape)
{
    bool of_memory = false;
    const char *failure = tape->device ? tape->device->failure(&of_memory) : NULL;
    if (failure && of_memory)
        sg_tape_fail(tape, SG_EXHAUSTED, "no memory on the device for its own work: %s; use a smaller batch", failure);
    else if (failure)
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
    tape->first_step = tape->last_step = NULL;
    tape->last_variable = NULL;
    tape->backward_pass = 0;
    tape->had_last = false;
    tape->reads = (sg_tape_reads){0};
    tape->arrivals = NULL;
    tape->arrivals_end = &tape->arrivals;
    tape->error.code = SG_OK;
    if (tape->device && sg_tape_device_works(tape))
        tape->device->fence();
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
    if (!bytes && !sg_tape_device_works(tape))
        return NULL;
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

const void *sg_tape_take(sg_tape *tape, const void *elems, size_t n_bytes)
{
    if (!tape->device)
        return elems;
    void *host = sg_tape_note(tape, n_bytes);
    if (host)
        tape->device->wait(tape->device->download(host, elems, n_bytes));
    return host && sg_tape_device_works(tape) ? host : NULL;
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
