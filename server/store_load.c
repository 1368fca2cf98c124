/* Values and slots of a checkpoint become those of the slices: read on a thread that may block, one slice at a time
 * into memory of its own, so that nobody is in the way of a generation that begins meanwhile. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sg_status sg_store_load_order(sg_store *store, const Shardgrad__V1__Load *order, bool *starts, sg_error *err)
{
    if (!store->plan || store->committed || store->attempt != 0 || !store->options.on_load)
        return sg_error_set(err, SG_INVALID, "a checkpoint cannot be loaded here: %s",
                            !store->plan              ? "no variables are declared"
                            : !store->options.on_load ? "this ps has no checkpoint.dir"
                                                      : "there are values, or will be");
    if (store->load.state == SG_STORE_LOAD_ENDED) {
        store->load.state = SG_STORE_LOAD_NONE;
        store->committed = store->load.result.code == SG_OK;
        return store->committed ? SG_OK : sg_error_set(err, store->load.result.code, "%s", store->load.result.message);
    }
    if (order->n_steps != 0 && (order->n_steps != store->plan->n_groups || order->n_steps > SG_STORE_MAX_GROUPS))
        return sg_error_set(err, SG_INVALID, "a checkpoint is to be loaded at %zu steps, want %" PRIu32 " or none",
                            order->n_steps, store->plan->n_groups);
    *starts = store->load.state == SG_STORE_LOAD_NONE;
    if (*starts) {
        store->load.n_steps = order->n_steps;
        for (size_t i = 0; i < order->n_steps; i++)
            store->load.steps[i] = order->steps[i];
        store->load.fresh_slots = order->fresh_slots;
    }
    if (*starts)
        store->load.what = (sg_store_load){
            .generation = store->generation, .set_iteration = order->iteration, .set_generation = order->generation};
    store->load.state = SG_STORE_LOAD_UNDER_WAY;
    return sg_error_set(err, SG_NOT_READY, "the checkpoint of iteration %" PRIu64 " is being read", order->iteration);
}

void sg_store_loaded(sg_store *store, uint64_t generation, sg_status status, const char *message)
{
    pthread_rwlock_wrlock(&store->lock);
    if (store->generation == generation && store->load.state == SG_STORE_LOAD_UNDER_WAY) {
        store->load.state = SG_STORE_LOAD_ENDED;
        store->load.result = (sg_error){.code = status};
        if (status != SG_OK)
            snprintf(store->load.result.message, sizeof store->load.result.message, "%s", message);
    }
    pthread_rwlock_unlock(&store->lock);
}

/* What a slice gets. */
typedef struct filling {
    sg_version *version, *spare;
    float *slots[SG_UPDATE_MAX_SLOTS];
    size_t n_slots;
    uint64_t n_applied;
} filling;

static void filling_deinit(filling *f)
{
    sg_version_release(f->version);
    sg_version_release(f->spare);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        free(f->slots[i]);
}

static sg_status filling_make(sg_store *store, const sg_store_slice *slice, filling *f, sg_error *err)
{
    f->n_slots = sg_store_n_slots(slice);
    f->version = sg_version_create(store->pool, slice->index, 0, slice->n_elems);
    bool complete = f->version != NULL;
    if (!slice->variable->frozen) {
        f->spare = sg_version_create(store->pool, slice->index, 0, slice->n_elems);
        complete = complete && f->spare;
    }
    for (size_t i = 0; i < f->n_slots; i++) {
        f->slots[i] = sg_try_alloc_aligned(slice->n_elems * sizeof(float));
        complete = complete && f->slots[i];
    }
    if (!complete)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for %" PRIu64 " elements of variable '%s' and their slots",
                            slice->n_elems, slice->variable->name);
    if (f->spare) /* touched, so that the first round does not wait for pages */
        memset(f->spare->values, 0, slice->n_elems * sizeof(float));
    return SG_OK;
}

/* Under store.lock, of the right generation. What the slice had goes into the filling. */
static void put(const sg_store *store, sg_store_slice *slice, filling *f)
{
    if (store->load.n_steps > 0 && !slice->variable->frozen)
        f->version->step = store->load.steps[slice->group];
    if (store->load.fresh_slots)
        f->n_applied = 0;
    pthread_mutex_lock(&slice->mutex);
    sg_version *newest = slice->newest;
    slice->newest = f->version;
    slice->round.step = f->version->step;
    slice->n_applied = f->n_applied;
    slice->uncounted = f->version->step - f->n_applied;
    if (!slice->spare) {
        slice->spare = f->spare;
        f->spare = NULL;
    }
    for (size_t i = 0; i < f->n_slots; i++) {
        float *old = slice->slots[i];
        slice->slots[i] = f->slots[i];
        f->slots[i] = old;
    }
    f->version = newest;
    pthread_mutex_unlock(&slice->mutex);
}

/* Are there slots to be read? Else they stay zeros. */
static bool has_slots(sg_store *store, uint64_t generation)
{
    pthread_rwlock_rdlock(&store->lock);
    bool has = store->generation != generation || !store->load.fresh_slots;
    pthread_rwlock_unlock(&store->lock);
    return has;
}

sg_status sg_store_fill(sg_store *store, uint64_t generation, uint32_t place, sg_store_read_fn read, void *user,
                        sg_error *err)
{
    SG_ASSERT(place < sg_store_n_slices(store));
    sg_store_slice *slice = &store->slices[place];
    const sg_plan_slice *planned = &store->plan->slices[slice->index];
    filling f = {.n_slots = 0};
    sg_status status = filling_make(store, slice, &f, err);
    sg_store_cut_reserve(store, slice);
    const size_t n_read = has_slots(store, generation) ? f.n_slots : 0;
    if (status == SG_OK)
        status = read(user, planned->variable, planned->first_elem, planned->n_elems, f.version->values, f.slots,
                      n_read, &f.version->step, &f.n_applied, err);
    for (size_t i = n_read; i < f.n_slots && status == SG_OK; i++)
        memset(f.slots[i], 0, slice->n_elems * sizeof(float));
    if (status == SG_OK) {
        pthread_rwlock_rdlock(&store->lock);
        if (store->generation == generation && !store->beginning)
            put(store, slice, &f);
        else
            status = sg_error_set(err, SG_ROLLED_BACK, "generation %" PRIu64 " has passed", generation);
        pthread_rwlock_unlock(&store->lock);
    }
    filling_deinit(&f);
    return status;
}
