/* tests/data/test_rows.c - rows that are added one by one. */
#include <criterion/criterion.h>

#include "worker/data/readers.h"

TestSuite(rows, .timeout = 20);

/* Room is taken for about as much as there is, whether rows are wide or narrow. */
Test(rows, a_few_rows_of_many_features_take_room_for_a_few)
{
    static const size_t widths[] = {1, 1000, 500000};
    const sg_data_file file = {.path = "a"};
    for (size_t w = 0; w < SG_ARRAY_LEN(widths); w++) {
        sg_dataset *d = sg_xcalloc(1, sizeof *d);
        d->n_features = widths[w];
        sg_rows rows = {.dataset = d};
        for (uint16_t i = 0; i < 20; i++) {
            float *row;
            cr_assert(sg_rows_add(&rows, &file, i, &row, NULL) == SG_OK);
            row[0] = i + 1.F;
            row[widths[w] - 1] = i + 1.F;
            cr_assert(rows.room * widths[w] * sizeof *row <= ((size_t)1 << 20) + 2 * d->n_examples * widths[w] * 4,
                      "%zu rows of %zu features", rows.room, widths[w]);
        }
        cr_assert(d->n_examples == 20);
        for (uint16_t i = 0; i < 20; i++) {
            const float *row = d->reals + i * widths[w];
            cr_assert(d->labels[i] == i && row[0] == i + 1.F && row[widths[w] - 1] == i + 1.F);
            cr_assert(widths[w] < 3 || row[1] == 0);
        }
        sg_dataset_destroy(d);
    }
}
