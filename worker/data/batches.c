/* worker/data/batches.c - two buffers: the consumer reads one while the thread fills the other.
 *
 * The thread alone fills buffers and keeps the orders of epochs. The consumer says what it wants; if that is what the
 * other buffer holds or is being made, it waits for it at most, and the buffers change places. Orders of the two epochs
 * used last are kept, since an asynchronous job steps back and forth over the end of an epoch. */
#include "worker/data/batches.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "shardgrad/client.h"
#include "worker/data/order.h"

#define N_BUFFERS 2
#define N_ORDERS  2

typedef struct key {
    uint64_t index;
    uint32_t rank, size; /* size 0: nothing */
} key;

typedef struct buffer {
    key holds;
    sg_batch batch;
    float *inputs;    /* [options.batch or n_examples, the smaller; n_features] */
    uint32_t *labels; /* [the same] */
} buffer;

typedef struct epoch_order {
    uint64_t epoch;
    uint64_t used_at; /* counts up; 0: empty */
    uint32_t *examples;
} epoch_order;

struct sg_batches {
    /* immutable after create */
    const sg_dataset *dataset;
    sg_batches_options options;
    uint64_t per_epoch;
    size_t max_rows;

    /* the thread's own */
    epoch_order orders[N_ORDERS];
    uint64_t order_uses;
    float *plain; /* [n_features] of an example that is to be augmented; NULL: none is */

    /* guarded by mutex; buffers[front] is the consumer's, the other one the thread's while it holds nothing */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    buffer buffers[N_BUFFERS];
    unsigned front;
    key wanted; /* for the back buffer */
    bool stop;

    uint64_t n_waits; /* the consumer's own */

    pthread_t thread;
    bool has_thread;
};

static bool keys_equal(key a, key b)
{
    return a.index == b.index && a.rank == b.rank && a.size == b.size;
}

static const uint32_t *order_of(sg_batches *b, uint64_t epoch)
{
    epoch_order *oldest = &b->orders[0];
    for (size_t i = 0; i < N_ORDERS; i++) {
        epoch_order *order = &b->orders[i];
        if (order->used_at && order->epoch == epoch) {
            order->used_at = ++b->order_uses;
            return order->examples;
        }
        if (order->used_at < oldest->used_at)
            oldest = order;
    }
    sg_order_shuffle(b->options.seed, epoch, b->dataset->n_examples, oldest->examples);
    oldest->epoch = epoch;
    oldest->used_at = ++b->order_uses;
    return oldest->examples;
}

static void take(sg_batches *b, uint64_t epoch, size_t example, float *inputs, uint32_t *label)
{
    if (!b->plain) {
        sg_dataset_get(b->dataset, example, inputs, label);
        return;
    }
    sg_dataset_get(b->dataset, example, b->plain, label);
    sg_augment_apply(b->dataset, sg_augment_draw_for(&b->options.augment, b->options.seed, epoch, example), b->plain,
                     inputs);
}

static void fill(sg_batches *b, buffer *out, key what)
{
    uint64_t first = what.index % b->per_epoch * b->options.batch;
    uint64_t left = b->dataset->n_examples - first;
    uint64_t begin;
    uint64_t end;
    sg_step_rows(&(sg_step){.rank = what.rank, .size = what.size}, left < b->options.batch ? left : b->options.batch,
                 &begin, &end);
    const uint64_t epoch = what.index / b->per_epoch;
    const uint32_t *order = b->options.in_order ? NULL : order_of(b, epoch);
    for (uint64_t row = begin; row < end; row++) {
        size_t example = order ? order[first + row] : first + row;
        size_t at = row - begin;
        take(b, epoch, example, out->inputs + at * b->dataset->n_features, &out->labels[at]);
    }
    out->batch = (sg_batch){
        .index = what.index, .first_row = begin, .n_rows = end - begin, .inputs = out->inputs, .labels = out->labels};
}

static void *run(void *user)
{
    sg_batches *b = user;
    pthread_mutex_lock(&b->mutex);
    while (!b->stop) {
        buffer *back = &b->buffers[1 - b->front];
        if (b->wanted.size == 0 || keys_equal(back->holds, b->wanted)) {
            pthread_cond_wait(&b->changed, &b->mutex);
            continue;
        }
        key what = b->wanted;
        back->holds = (key){0};
        pthread_mutex_unlock(&b->mutex);
        fill(b, back, what);
        pthread_mutex_lock(&b->mutex);
        back->holds = what;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

static bool allocate(sg_batches *b)
{
    size_t n_features = b->dataset->n_features;
    size_t n_bytes;
    if (__builtin_mul_overflow(b->max_rows * sizeof(float), n_features, &n_bytes))
        return false;
    for (size_t i = 0; i < N_BUFFERS; i++) {
        b->buffers[i].inputs = sg_try_alloc_aligned(n_bytes);
        b->buffers[i].labels = sg_try_alloc_aligned(b->max_rows * sizeof(uint32_t));
        if (!b->buffers[i].inputs || !b->buffers[i].labels)
            return false;
    }
    if (b->options.augment.crop > 0 || b->options.augment.flip) {
        b->plain = sg_try_alloc_aligned(n_features * sizeof(float));
        if (!b->plain)
            return false;
    }
    for (size_t i = 0; i < N_ORDERS && !b->options.in_order; i++) {
        b->orders[i].examples = sg_try_alloc_aligned(b->dataset->n_examples * sizeof(uint32_t));
        if (!b->orders[i].examples)
            return false;
    }
    return true;
}

sg_status sg_batches_create(const sg_dataset *dataset, const sg_batches_options *options, sg_batches **batches,
                            sg_error *err)
{
    SG_ASSERT(options->batch >= 1 && dataset->n_examples >= 1);
    SG_ASSERT(options->augment.crop == 0 ||
              (options->augment.crop < dataset->height && options->augment.crop < dataset->width));
    SG_ASSERT(!options->augment.flip || dataset->channels > 0);
    sg_batches *b = sg_xcalloc(1, sizeof *b);
    b->dataset = dataset;
    b->options = *options;
    b->max_rows = options->batch < dataset->n_examples ? options->batch : dataset->n_examples;
    b->per_epoch = (dataset->n_examples - 1) / options->batch + 1;
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (!allocate(b) || pthread_create(&b->thread, NULL, run, b) != 0) {
        sg_batches_destroy(b);
        return sg_error_set(err, SG_EXHAUSTED,
                            "data: no memory or thread for two batches of %llu examples; make train.batch smaller",
                            (unsigned long long)options->batch);
    }
    b->has_thread = true;
    *batches = b;
    return SG_OK;
}

void sg_batches_destroy(sg_batches *batches)
{
    if (!batches)
        return;
    if (batches->has_thread) {
        pthread_mutex_lock(&batches->mutex);
        batches->stop = true;
        pthread_cond_broadcast(&batches->changed);
        pthread_mutex_unlock(&batches->mutex);
        pthread_join(batches->thread, NULL);
    }
    for (size_t i = 0; i < N_BUFFERS; i++) {
        free(batches->buffers[i].inputs);
        free(batches->buffers[i].labels);
    }
    for (size_t i = 0; i < N_ORDERS; i++)
        free(batches->orders[i].examples);
    free(batches->plain);
    pthread_cond_destroy(&batches->changed);
    pthread_mutex_destroy(&batches->mutex);
    free(batches);
}

uint64_t sg_batches_per_epoch(const sg_batches *batches)
{
    return batches->per_epoch;
}

static void want(sg_batches *b, key what)
{
    b->wanted = what;
    pthread_cond_broadcast(&b->changed);
}

const sg_batch *sg_batches_get(sg_batches *batches, uint64_t index, uint32_t rank, uint32_t size)
{
    SG_ASSERT(rank < size);
    key asked = {.index = index, .rank = rank, .size = size};
    pthread_mutex_lock(&batches->mutex);
    want(batches, asked);
    if (!keys_equal(batches->buffers[1 - batches->front].holds, asked))
        batches->n_waits++;
    while (!keys_equal(batches->buffers[1 - batches->front].holds, asked))
        pthread_cond_wait(&batches->changed, &batches->mutex);
    batches->front = 1 - batches->front;
    const sg_batch *batch = &batches->buffers[batches->front].batch;
    want(batches, (key){.index = index + 1, .rank = rank, .size = size});
    pthread_mutex_unlock(&batches->mutex);
    return batch;
}

uint64_t sg_batches_waits(const sg_batches *batches)
{
    return batches->n_waits;
}

void sg_batches_expect(sg_batches *batches, uint64_t index, uint32_t rank, uint32_t size)
{
    SG_ASSERT(rank < size);
    pthread_mutex_lock(&batches->mutex);
    want(batches, (key){.index = index, .rank = rank, .size = size});
    pthread_mutex_unlock(&batches->mutex);
}
