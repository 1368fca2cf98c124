/* worker/data/augment.c - see augment.h. */
#include "worker/data/augment.h"

#include <string.h>

#include "common/random.h"

/* 0 .. n - 1, even but for one part in 2^32 / n. */
static uint32_t below(uint32_t n, uint32_t word)
{
    return (uint32_t)(((uint64_t)word * n) >> 32);
}

sg_augment_draw sg_augment_draw_for(const sg_augment *augment, uint64_t seed, uint64_t epoch, uint64_t index)
{
    uint32_t words[4];
    sg_random_block(seed, sg_random_stream("augmentation", epoch), index, words);
    const int32_t crop = (int32_t)augment->crop;
    const uint32_t n_places = 2 * augment->crop + 1;
    return (sg_augment_draw){.down = (int32_t)below(n_places, words[0]) - crop,
                             .right = (int32_t)below(n_places, words[1]) - crop,
                             .flip = augment->flip && (words[2] & 1) != 0};
}

static void fill(float value, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = value;
}

/* A row of the window: what of it lies outside of the image is black. */
static void move_row(const float *row, int64_t right, int64_t width, float black, float *out)
{
    const int64_t begin = right < 0 ? -right : 0;
    const int64_t end = right > 0 ? width - right : width;
    fill(black, out, (size_t)begin);
    memcpy(out + begin, row + begin + right, (size_t)(end - begin) * sizeof *out);
    fill(black, out + end, (size_t)(width - end));
}

static void mirror_row(float *row, size_t width)
{
    for (size_t i = 0; i < width / 2; i++) {
        float left = row[i];
        row[i] = row[width - 1 - i];
        row[width - 1 - i] = left;
    }
}

void sg_augment_apply(const sg_dataset *dataset, sg_augment_draw draw, const float *image, float *out)
{
    const int64_t height = (int64_t)dataset->height, width = (int64_t)dataset->width;
    SG_ASSERT(draw.right < width && -draw.right < width);
    for (size_t channel = 0; channel < dataset->channels; channel++) {
        const float black = sg_dataset_black(dataset, channel);
        const float *plane = image + channel * dataset->height * dataset->width;
        for (int64_t y = 0; y < height; y++, out += width) {
            const int64_t from = y + draw.down;
            if (from < 0 || from >= height) {
                fill(black, out, (size_t)width);
                continue;
            }
            move_row(plane + from * width, draw.right, width, black, out);
            if (draw.flip)
                mirror_row(out, (size_t)width);
        }
    }
}
