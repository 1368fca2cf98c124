/* kernels/cuda_move.cu - elements brought from one place to another. */
#include "kernels/cuda_launch.h"

static void rows(size_t n_rows, size_t cols, const void *from, size_t from_stride, bool accumulate, void *to,
                 size_t to_stride)
{
    const real *in = (const real *)from;
    real *out = (real *)to;
    sg_cuda_each(n_rows * cols, [=] __device__(size_t i) {
        const size_t place = i / cols * to_stride + i % cols;
        out[place] = in[i / cols * from_stride + i % cols] + (accumulate ? out[place] : 0);
    });
}

static void gather(size_t n_ids, size_t cols, const void *table, const uint32_t *ids, void *y)
{
    const real *in = (const real *)table;
    real *out = (real *)y;
    sg_cuda_each(n_ids * cols, [=] __device__(size_t i) { out[i] = in[ids[i / cols] * cols + i % cols]; });
}

/* Each column is one thread's, which takes the ids in their order. */
static void scatter(size_t n_ids, size_t n_rows, size_t cols, const void *dy, const uint32_t *ids, bool accumulate,
                    void *dtable)
{
    const real *in = (const real *)dy;
    real *out = (real *)dtable;
    if (!accumulate)
        sg_cuda_each(n_rows * cols, [=] __device__(size_t i) { out[i] = 0; });
    sg_cuda_each(cols, [=] __device__(size_t c) {
        for (size_t i = 0; i < n_ids; i++)
            out[ids[i] * cols + c] += in[i * cols + c];
    });
}

static void upsample(size_t planes, size_t height, size_t width, size_t factor, const void *x, void *y)
{
    const real *in = (const real *)x;
    real *out = (real *)y;
    const size_t out_width = width * factor;
    sg_cuda_each(planes * height * factor * out_width,
                 [=] __device__(size_t i) { out[i] = in[i / out_width / factor * width + i % out_width / factor]; });
}

static void upsample_backward(size_t planes, size_t height, size_t width, size_t factor, const void *dy,
                              bool accumulate, void *dx)
{
    const real *in = (const real *)dy;
    real *out = (real *)dx;
    sg_cuda_each(planes * height * width, [=] __device__(size_t i) {
        real sum = accumulate ? out[i] : 0;
        const size_t first = (i / width * factor) * width * factor + i % width * factor;
        for (size_t a = 0; a < factor; a++)
            for (size_t b = 0; b < factor; b++)
                sum += in[first + a * width * factor + b];
        out[i] = sum;
    });
}

static void fill_planes(size_t images, size_t channels, size_t plane, const void *values, void *x)
{
    const real *in = (const real *)values;
    real *out = (real *)x;
    sg_cuda_each(images * channels * plane, [=] __device__(size_t i) { out[i] = in ? in[i / plane % channels] : 0; });
}

const sg_kernel_move sg_cuda_move = {.rows = rows,
                                     .gather = gather,
                                     .scatter = scatter,
                                     .upsample = upsample,
                                     .upsample_backward = upsample_backward,
                                     .fill_planes = fill_planes};
