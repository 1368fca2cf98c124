/* kernels/ref_move.c - elements brought from one place to another. The compiler makes vectors of it: the CPU uses it,
 * too. */
#include "kernels/ref.h"

static void rows(size_t n_rows, size_t cols, const void *from, size_t from_stride, bool accumulate, void *to,
                 size_t to_stride)
{
    for (size_t r = 0; r < n_rows; r++) {
        const real *restrict in = (const real *)from + r * from_stride;
        real *restrict out = (real *)to + r * to_stride;
        for (size_t c = 0; c < cols; c++)
            out[c] = in[c] + (accumulate ? out[c] : 0);
    }
}

static void gather(size_t n_ids, size_t cols, const void *table, const uint32_t *ids, void *y)
{
    for (size_t i = 0; i < n_ids; i++)
        rows(1, cols, (const real *)table + ids[i] * cols, cols, false, (real *)y + i * cols, cols);
}

static void scatter(size_t n_ids, size_t n_rows, size_t cols, const void *dy, const uint32_t *ids, bool accumulate,
                    void *dtable)
{
    for (size_t i = 0; !accumulate && i < n_rows * cols; i++)
        ((real *)dtable)[i] = 0;
    for (size_t i = 0; i < n_ids; i++)
        rows(1, cols, (const real *)dy + i * cols, cols, true, (real *)dtable + ids[i] * cols, cols);
}

static void upsample(size_t planes, size_t height, size_t width, size_t factor, const void *x, void *y)
{
    real *out = y;
    for (size_t r = 0; r < planes * height * factor; r++)
        for (size_t j = 0; j < width * factor; j++)
            *out++ = ((const real *)x)[r / factor * width + j / factor];
}

static void upsample_backward(size_t planes, size_t height, size_t width, size_t factor, const void *dy,
                              bool accumulate, void *dx)
{
    const real *in = dy;
    real *out = dx;
    for (size_t i = 0; i < planes * height * width; i++) {
        real sum = accumulate ? out[i] : 0;
        const size_t first = (i / width * factor) * width * factor + i % width * factor;
        for (size_t a = 0; a < factor; a++)
            for (size_t b = 0; b < factor; b++)
                sum += in[first + a * width * factor + b];
        out[i] = sum;
    }
}

static void fill_planes(size_t images, size_t channels, size_t plane, const void *values, void *x)
{
    for (size_t i = 0; i < images * channels; i++) {
        const real value = values ? ((const real *)values)[i % channels] : 0;
        for (size_t p = 0; p < plane; p++)
            ((real *)x)[i * plane + p] = value;
    }
}

const sg_kernel_move SG_REF_NAME(sg_ref_move_) = {.rows = rows,
                                                  .gather = gather,
                                                  .scatter = scatter,
                                                  .upsample = upsample,
                                                  .upsample_backward = upsample_backward,
                                                  .fill_planes = fill_planes};
