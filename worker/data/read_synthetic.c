/* worker/data/read_synthetic.c - see readers.h. A feature is the mean of a byte of its class and a byte of its own
 * example, both drawn from the seed, so that there is something to learn. Examples go round the classes. */
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "worker/data/readers.h"

#define BLOCK_BYTES ((size_t)16) /* that one draw gives */

/* [n rounded up to BLOCK_BYTES] bytes of the stream. */
static void draw(uint64_t seed, uint64_t stream, size_t n, uint8_t *out)
{
    for (size_t block = 0; block * BLOCK_BYTES < n; block++) {
        uint32_t words[4];
        sg_random_block(seed, stream, block, words);
        memcpy(out + block * BLOCK_BYTES, words, BLOCK_BYTES);
    }
}

static void make_up(const sg_config *config, bool test, uint8_t *of_class, uint8_t *of_example, sg_dataset *d)
{
    const uint64_t seed = config->seed;
    const char *name = test ? "synthetic test example" : "synthetic training example";
    for (uint32_t class = 0; class < d->n_classes && class < d->n_examples; class ++) {
        draw(seed, sg_random_stream("synthetic class", class), d->n_features, of_class);
        for (size_t i = class; i < d->n_examples; i += d->n_classes) {
            uint8_t *out = d->bytes + i * d->n_features;
            draw(seed, sg_random_stream(name, i), d->n_features, of_example);
            for (size_t f = 0; f < d->n_features; f++)
                out[f] = (uint8_t)((of_class[f] + of_example[f]) / 2);
            d->labels[i] = (uint16_t) class;
        }
    }
}

static sg_status too_many(const sg_dataset *d, sg_error *err)
{
    return sg_error_set(err, SG_EXHAUSTED,
                        "data.format synthetic: no memory for %zu examples of %zu bytes: set data.train_rows or "
                        "test_rows to fewer",
                        d->n_examples, d->n_features);
}

sg_status sg_look_at_synthetic(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    sg_reader_take_shape(config, d);
    d->n_examples = test ? config->data.test_rows : config->data.train_rows;
    return d->n_examples <= SG_DATA_MAX_BYTES / d->n_features ? SG_OK : too_many(d, err);
}

sg_status sg_read_synthetic(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    sg_status status = sg_look_at_synthetic(config, test, d, err);
    if (status != SG_OK)
        return status;
    const size_t n_drawn = (d->n_features + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    uint8_t *drawn = sg_try_alloc_aligned(2 * n_drawn);
    d->bytes = sg_try_alloc_aligned(d->n_examples * d->n_features);
    d->labels = sg_try_alloc_aligned(d->n_examples * sizeof *d->labels);
    if (!drawn || !d->bytes || !d->labels) {
        free(drawn);
        return too_many(d, err);
    }
    make_up(config, test, drawn, drawn + n_drawn, d);
    free(drawn);
    return SG_OK;
}
