/* tests/data/test_batches.c - what a batch holds depends on seed, number, rank and size, and on nothing else. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/random.h"
#include "common/status.h"
#include "worker/data/batches.h"
#include "worker/data/order.h"

TestSuite(batches, .timeout = 20);

enum { n_examples = 103, n_features = 4 };

/* Example i has the features i, i, i, i and the label i % 10. */
static sg_dataset *dataset_make(void)
{
    sg_dataset *d = sg_xcalloc(1, sizeof *d);
    *d = (sg_dataset){
        .n_examples = n_examples, .n_features = n_features, .n_classes = 10, .n_scales = 1, .deviation = {1}};
    d->bytes = sg_xcalloc(n_examples, n_features);
    d->labels = sg_xcalloc(n_examples, sizeof *d->labels);
    for (size_t i = 0; i < n_examples; i++) {
        memset(d->bytes + i * n_features, (int)i, n_features);
        d->labels[i] = (uint16_t)(i % 10);
    }
    return d;
}

static sg_batches *make(const sg_dataset *dataset, uint64_t batch, bool in_order)
{
    sg_error err = {0};
    sg_batches *batches = NULL;
    sg_batches_options options = {.batch = batch, .seed = 5, .in_order = in_order};
    cr_assert(sg_batches_create(dataset, &options, &batches, &err) == SG_OK, "%s", err.message);
    return batches;
}

/* Which example a row holds. */
static size_t example_in(const sg_batch *batch, size_t row)
{
    size_t example = (size_t)batch->inputs[row * n_features];
    for (size_t f = 0; f < n_features; f++)
        cr_assert(batch->inputs[row * n_features + f] == (float)example);
    cr_assert(batch->labels[row] == example % 10);
    return example;
}

/* Asserts that the batch holds the rows that the order of its epoch gives to rank of size. */
static void assert_rows(const sg_batch *batch, uint64_t global, uint64_t index, uint32_t rank, uint32_t size)
{
    uint32_t order[n_examples];
    uint64_t per_epoch = (n_examples + global - 1) / global;
    sg_order_shuffle(5, index / per_epoch, n_examples, order);
    uint64_t first = index % per_epoch * global;
    uint64_t length = n_examples - first < global ? n_examples - first : global;
    uint64_t begin = rank * length / size;
    uint64_t end = (rank + 1) * length / size;
    cr_assert_eq(batch->first_row, begin);
    cr_assert(batch->index == index && batch->n_rows == end - begin, "batch %zu has %zu rows", (size_t)index,
              batch->n_rows);
    for (size_t row = 0; row < batch->n_rows; row++)
        cr_assert(example_in(batch, row) == order[first + begin + row], "batch %zu, row %zu", (size_t)index, row);
}

Test(batches, an_epoch_visits_every_example_once_the_short_batch_included)
{
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 10, false);
    cr_assert(sg_batches_per_epoch(batches) == 11);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[n_examples] = {0};
        for (uint64_t i = 0; i < 11; i++) {
            const sg_batch *batch = sg_batches_get(batches, epoch * 11 + i, 0, 1);
            cr_assert(batch->n_rows == (i < 10 ? 10 : 3));
            for (size_t row = 0; row < batch->n_rows; row++) {
                size_t example = example_in(batch, row);
                cr_assert_not(seen[example]);
                seen[example] = true;
            }
        }
    }
    sg_batches_destroy(batches);
    sg_dataset_destroy(dataset);
}

Test(batches, the_ranks_share_each_batch_without_overlap)
{
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 10, false);
    for (uint32_t size = 1; size <= 12; size++) {
        for (uint64_t index = 9; index < 12; index++) {
            size_t n_rows = 0;
            for (uint32_t rank = 0; rank < size; rank++) {
                const sg_batch *batch = sg_batches_get(batches, index, rank, size);
                assert_rows(batch, 10, index, rank, size);
                n_rows += batch->n_rows;
            }
            cr_assert(n_rows == (index == 10 ? 3 : 10));
        }
    }
    sg_batches_destroy(batches);
    sg_dataset_destroy(dataset);
}

Test(batches, any_sequence_of_asks_and_hints_gives_the_right_rows)
{
    enum { seed = 17, n_asks = 3000 };
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 10, false);
    uint64_t index = 0;
    for (uint64_t i = 0; i < n_asks; i++) {
        uint32_t words[4];
        sg_random_block(seed, 0, i, words);
        uint32_t size = 1 + words[0] % 3;
        uint32_t rank = words[1] % size;
        index = words[2] % 4 ? index + words[2] % 3 : words[2] % 50; /* again, next, over one, anywhere */
        assert_rows(sg_batches_get(batches, index, rank, size), 10, index, rank, size);
        if (words[3] % 2)
            sg_batches_expect(batches, words[3] % 50, 0, size);
    }
    sg_batches_destroy(batches);
    sg_dataset_destroy(dataset);
}

Test(batches, a_batch_stays_while_the_next_is_made)
{
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 10, false);
    for (uint64_t index = 0; index < 500; index++) {
        const sg_batch *batch = sg_batches_get(batches, index, 0, 1);
        sg_batches_expect(batches, index + 7, 0, 1);
        sg_batches_expect(batches, index + 1, 0, 1);
        assert_rows(batch, 10, index, 0, 1);
    }
    sg_batches_destroy(batches);
    sg_dataset_destroy(dataset);
}

Test(batches, in_order_means_as_in_the_file)
{
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 10, true);
    for (uint64_t index = 0; index < 22; index++) {
        const sg_batch *batch = sg_batches_get(batches, index, 0, 1);
        for (size_t row = 0; row < batch->n_rows; row++)
            cr_assert(example_in(batch, row) == index % 11 * 10 + row);
    }
    sg_batches_destroy(batches);
    sg_dataset_destroy(dataset);
}

Test(batches, a_batch_larger_than_the_data_is_the_whole_data)
{
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 1U << 30, false);
    cr_assert(sg_batches_per_epoch(batches) == 1);
    assert_rows(sg_batches_get(batches, 4, 0, 1), 1U << 30, 4, 0, 1);
    assert_rows(sg_batches_get(batches, 5, 1, 2), 1U << 30, 5, 1, 2);
    sg_batches_destroy(batches);
    sg_batches_destroy(NULL);
    sg_dataset_destroy(dataset);
}

Test(batches, they_can_be_destroyed_while_one_is_being_made)
{
    sg_dataset *dataset = dataset_make();
    for (size_t i = 0; i < 200; i++) {
        sg_batches *batches = make(dataset, 50, false);
        if (i % 2)
            sg_batches_expect(batches, i, 0, 1);
        sg_batches_destroy(batches);
    }
    sg_dataset_destroy(dataset);
}

Test(batches, it_is_counted_how_often_a_get_waited)
{
    sg_dataset *dataset = dataset_make();
    sg_batches *batches = make(dataset, 10, false);
    cr_assert(sg_batches_waits(batches) == 0);
    (void)sg_batches_get(batches, 0, 0, 1);
    cr_assert(sg_batches_waits(batches) == 1);
    (void)sg_batches_get(batches, 40, 0, 1); /* nobody could know */
    cr_assert(sg_batches_waits(batches) == 2);
    /* The next one is made meanwhile: sooner or later it is there when it is asked for. */
    uint64_t before = 0;
    for (uint64_t index = 41; index < 10000 && before != sg_batches_waits(batches); index++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        before = sg_batches_waits(batches);
        (void)sg_batches_get(batches, index, 0, 1);
    }
    cr_assert(before == sg_batches_waits(batches));
    sg_batches_destroy(batches);
    sg_dataset_destroy(dataset);
}
