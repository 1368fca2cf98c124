/* tests/data/test_augment.c - images that are moved and mirrored, the same on every machine and for any number of
 * workers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/batches.h"

TestSuite(augment, .timeout = 20);

enum { channels = 2, height = 3, width = 4, n_features = channels * height * width, n_examples = 50 };

static const float mean = 100, deviation = 2;

/* Byte f of example i is i + f * 3; black is (0 - 100) / 2. */
static sg_dataset *make_dataset(void)
{
    sg_dataset *d = sg_xcalloc(1, sizeof *d);
    *d = (sg_dataset){.n_examples = n_examples,
                      .channels = channels,
                      .height = height,
                      .width = width,
                      .n_features = n_features,
                      .n_classes = 2,
                      .n_scales = 1,
                      .mean = {mean},
                      .deviation = {deviation}};
    d->bytes = sg_xcalloc(n_examples, n_features);
    d->labels = sg_xcalloc(n_examples, sizeof *d->labels);
    for (size_t i = 0; i < n_examples * n_features; i++)
        d->bytes[i] = (uint8_t)(i / n_features + i % n_features * 3);
    return d;
}

/* What the words of the header mean, pixel by pixel. */
static float expected(const float *image, sg_augment_draw draw, int c, int y, int x)
{
    const int from_y = y + draw.down, from_x = (draw.flip ? width - 1 - x : x) + draw.right;
    if (from_y < 0 || from_y >= height || from_x < 0 || from_x >= width)
        return (0 - mean) * (1 / deviation);
    return image[(c * height + from_y) * width + from_x];
}

Test(augment, every_move_and_mirror_image_is_that_of_its_definition)
{
    sg_dataset *d = make_dataset();
    float image[n_features], out[n_features];
    uint32_t label;
    sg_dataset_get(d, 7, image, &label);
    for (int32_t i = 0; i < 7 * 7 * 2; i++) {
        sg_augment_draw draw = {.down = i / 7 % 7 - 3, .right = i % 7 - 3, .flip = i >= 49};
        sg_augment_apply(d, draw, image, out);
        for (int c = 0; c < channels; c++)
            for (int y = 0; y < height; y++)
                for (int x = 0; x < width; x++)
                    cr_assert(out[(c * height + y) * width + x] == expected(image, draw, c, y, x),
                              "down %d, right %d, flip %d: channel %d, row %d, column %d", draw.down, draw.right,
                              draw.flip, c, y, x);
    }
    sg_dataset_destroy(d);
}

Test(augment, every_place_is_drawn_about_as_often_and_depends_on_seed_epoch_and_index)
{
    enum { n_draws = 5000 };
    const sg_augment augment = {.crop = 2, .flip = true};
    size_t counts[5][5][2] = {0}, n_alike = 0;
    for (uint64_t i = 0; i < n_draws; i++) {
        sg_augment_draw draw = sg_augment_draw_for(&augment, 3, 8, i);
        cr_assert(abs(draw.down) <= 2 && abs(draw.right) <= 2);
        counts[draw.down + 2][draw.right + 2][draw.flip]++;
        sg_augment_draw again = sg_augment_draw_for(&augment, 3, 8, i), epoch = sg_augment_draw_for(&augment, 3, 9, i),
                        seed = sg_augment_draw_for(&augment, 4, 8, i);
        cr_assert(again.down == draw.down && again.right == draw.right && again.flip == draw.flip);
        n_alike += epoch.down == draw.down && epoch.right == draw.right;
        n_alike += seed.down == draw.down && seed.right == draw.right;
    }
    for (size_t place = 0; place < 50; place++)
        cr_assert(counts[place / 10][place / 2 % 5][place % 2] > 50, "place %zu, of 100 wanted", place);
    cr_assert(n_alike < 2 * n_draws / 25 * 3 / 2, "%zu", n_alike);
    const sg_augment none = {0};
    sg_augment_draw draw = sg_augment_draw_for(&none, 3, 8, 1);
    cr_assert(draw.down == 0 && draw.right == 0 && !draw.flip);
}

static sg_batches *make(const sg_dataset *d)
{
    sg_batches *batches = NULL;
    sg_batches_options options = {.batch = 10, .seed = 5, .augment = {.crop = 2, .flip = true}};
    cr_assert(sg_batches_create(d, &options, &batches, NULL) == SG_OK);
    return batches;
}

Test(augment, an_epoch_is_the_same_for_any_number_of_workers_and_another_than_the_next)
{
    sg_dataset *d = make_dataset();
    sg_batches *whole = make(d), *shared = make(d);
    float first[10 * n_features];
    for (uint64_t index = 0; index < 10; index++) {
        const sg_batch *all = sg_batches_get(whole, index, 0, 1);
        size_t row = 0;
        for (uint32_t rank = 0; rank < 3; rank++) {
            const sg_batch *part = sg_batches_get(shared, index, rank, 3);
            cr_assert(memcmp(part->inputs, all->inputs + row * n_features, part->n_rows * n_features * sizeof(float)) ==
                      0);
            row += part->n_rows;
        }
        cr_assert(row == all->n_rows);
        if (index == 0)
            memcpy(first, all->inputs, sizeof first);
        else if (index == 5)
            cr_assert(memcmp(first, all->inputs, sizeof first) != 0);
    }
    sg_batches_destroy(whole);
    sg_batches_destroy(shared);
    sg_dataset_destroy(d);
}
