/* server/ps_save_part.c - see ps_save_part.h. */
#include "server/ps_save_part.h"

#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "common/plan.h"
#include "server/background.h"
#include "server/pace.h"

/* Slices are written so many at a time, or so many bytes of values: between batches it is looked whether to go on. */
#define BATCH_SLICES 64u
#define BATCH_BYTES  ((uint64_t)4 << 20)
/* While it rests it is looked so often whether somebody has come to wait. */
#define REST_US UINT64_C(10000)

typedef struct writing {
    const sg_ps_save_part *what;
    sg_checkpoint_slice *slices; /* [n_slices] */
    const char **names;          /* [plan->n_variables] */
    uint32_t n_slices;
    sg_checkpoint_writer *writer;
    sg_store_kept kept[BATCH_SLICES];
    uint32_t first, n; /* the batch: places in the store */
    sg_pace pace;
    sg_status status;
    sg_error *err;
} writing;

static uint64_t slice_bytes(const sg_checkpoint_slice *slice)
{
    return (1 + slice->n_slots) * slice->n_elems * sizeof(float);
}

/* What is known of all slices before any of them is taken. */
static void lay_out(writing *w)
{
    sg_store *store = w->what->store;
    const sg_plan *plan = sg_store_plan(store);
    w->n_slices = sg_store_n_slices(store);
    w->slices = sg_xcalloc(w->n_slices, sizeof *w->slices);
    w->names = sg_xcalloc(plan->n_variables, sizeof *w->names);
    for (uint32_t i = 0; i < plan->n_variables; i++)
        w->names[i] = sg_store_variable_name(store, i);
    for (uint32_t place = 0; place < w->n_slices; place++) {
        uint32_t index, n_slots;
        sg_store_place(store, place, &index, &n_slots);
        const sg_plan_slice *planned = &plan->slices[index];
        w->slices[place] = (sg_checkpoint_slice){.index = index,
                                                 .variable = planned->variable,
                                                 .first_elem = planned->first_elem,
                                                 .n_elems = planned->n_elems,
                                                 .n_slots = n_slots};
        w->pace.n_bytes += slice_bytes(&w->slices[place]);
    }
}

static sg_status take_batch(writing *w)
{
    uint64_t n_bytes = 0;
    w->n = 0;
    while (w->n < BATCH_SLICES && w->first + w->n < w->n_slices && n_bytes < BATCH_BYTES) {
        uint32_t place = w->first + w->n;
        sg_store_kept *kept = &w->kept[w->n];
        sg_checkpoint_slice *slice = &w->slices[place];
        sg_status status = sg_store_take_kept(w->what->store, &w->what->cut, place, kept, w->err);
        if (status != SG_OK)
            return status;
        w->n++;
        SG_ASSERT(kept->n_slots == slice->n_slots);
        slice->step = kept->step;
        slice->n_applied = kept->n_applied;
        slice->values = kept->version->values;
        for (size_t i = 0; i < kept->n_slots; i++)
            slice->slots[i] = kept->slots[i]->values;
        n_bytes += slice->n_elems * sizeof(float);
    }
    return SG_OK;
}

static void let_go(writing *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        sg_store_kept_deinit(&w->kept[i]);
    w->first += w->n;
}

static void append_batch(void *user)
{
    writing *w = user;
    w->status = sg_checkpoint_part_append(w->writer, w->n, w->err);
}

static bool gives_way(const sg_ps_save_part *what)
{
    return !what->cut.urgent && !atomic_load(what->hurry) && sg_clock_ms() < what->cut_ms + what->patience_ms;
}

static uint64_t now_us(void)
{
    return sg_clock_ns() / 1000;
}

/* Until the next batch is due, unless somebody comes to wait, or nobody wants it any more. */
static void rest(const writing *w)
{
    const uint64_t until_us = now_us() + sg_pace_rest_us(&w->pace, now_us());
    for (uint64_t us = now_us(); us < until_us && gives_way(w->what) && !atomic_load(w->what->stop); us = now_us()) {
        const uint64_t left_us = until_us - us < REST_US ? until_us - us : REST_US;
        nanosleep(&(struct timespec){.tv_nsec = (long)left_us * 1000}, NULL);
    }
}

static void write_batch(writing *w)
{
    const uint64_t began_us = now_us();
    if (gives_way(w->what))
        sg_background_run(append_batch, w);
    else
        append_batch(w);
    w->pace.worked_us += now_us() - began_us;
    for (uint32_t i = 0; i < w->n; i++)
        w->pace.n_done += slice_bytes(&w->slices[w->first + i]);
}

static sg_status write_batches(writing *w)
{
    w->pace.began_us = now_us();
    w->pace.by_us = w->pace.began_us + w->what->patience_ms * 750; /* three quarters of it */
    while (w->first < w->n_slices) {
        rest(w);
        w->status = take_batch(w);
        if (w->status == SG_OK)
            write_batch(w);
        let_go(w);
        if (w->status != SG_OK)
            return w->status;
    }
    return SG_OK;
}

static sg_status write_file(writing *w, sg_checkpoint_part *part)
{
    const sg_ps_save_part *what = w->what;
    const sg_checkpoint_cut cut = {.set = {.iteration = what->cut.mark, .generation = what->cut.generation},
                                   .ps = what->ps,
                                   .n_ps = (uint32_t)what->config->ps.n,
                                   .slice_bytes = what->config->slice_bytes,
                                   .rule = sg_rule_name(sg_store_rule_of_now(what->store)),
                                   .names = w->names,
                                   .slices = w->slices,
                                   .n_slices = w->n_slices,
                                   .stop = what->stop};
    sg_status status = sg_checkpoint_part_begin(what->folder, &cut, &w->writer, w->err);
    if (status != SG_OK)
        return status;
    status = write_batches(w);
    sg_status ended = sg_checkpoint_part_end(w->writer, status == SG_OK, part, w->err);
    return status != SG_OK ? status : ended;
}

sg_status sg_ps_save_part_write(const sg_ps_save_part *what, sg_checkpoint_part *part, sg_error *err)
{
    writing w = {.what = what, .err = err};
    sg_status status = SG_OK;
    *part = (sg_checkpoint_part){.ps = what->ps};
    lay_out(&w);
    if (w.n_slices > 0)
        status = write_file(&w, part);
    free(w.slices);
    free(w.names);
    return status;
}
