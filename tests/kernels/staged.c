/* tests/kernels/staged.c - see staged.h. A line per function and array; what is lent is told by the array's name. */
#include "tests/kernels/staged.h"

#include "common/status.h"

#define MAX_LOANS 8u

static const sg_kernel *inner;

/* An array of the host that the device has a copy of. */
typedef struct loan {
    void *host, *lent;
    size_t n_bytes;
    bool written;
} loan;

typedef struct loans {
    loan all[MAX_LOANS];
    size_t n;
} loans;

/* The device's copy; the same for an array that was lent before. NULL stays NULL. */
static void *lend(loans *l, const void *host, size_t n_bytes, bool written)
{
    for (size_t i = 0; i < l->n; i++) {
        if (host != l->all[i].host || n_bytes != l->all[i].n_bytes)
            continue;
        l->all[i].written = l->all[i].written || written;
        return l->all[i].lent;
    }
    if (!host)
        return NULL;
    SG_ASSERT(l->n < MAX_LOANS);
    loan *added = &l->all[l->n++];
    *added = (loan){.host = (void *)(uintptr_t)host, .n_bytes = n_bytes, .written = written};
    added->lent = inner->device->try_alloc(n_bytes);
    SG_ASSERT(added->lent != NULL);
    inner->device->upload(added->lent, host, n_bytes);
    return added->lent;
}

static void take_back(loans *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->all[i].written)
            inner->device->wait(inner->device->download(l->all[i].host, l->all[i].lent, l->all[i].n_bytes));
        inner->device->release(l->all[i].lent);
    }
    bool of_memory;
    SG_ASSERT(inner->device->failure(&of_memory) == NULL);
}

#define LEND(array, n_elems) lend(&l, array, (n_elems) * sizeof(float), false)
#define GIVE(array, n_elems) lend(&l, array, (n_elems) * sizeof(float), true)

/* Elements from the first to the last of so many rows. */
static size_t reach(size_t rows, size_t cols, size_t stride)
{
    return rows > 0 ? (rows - 1) * stride + cols : 0;
}

/* Rows of a table of which these are asked for. */
static size_t n_rows_of(size_t n_ids, const uint32_t *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < n_ids; i++)
        n = ids[i] >= n ? ids[i] + 1U : n;
    return n;
}

static void gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const void *a, const void *b,
                 bool accumulate, void *c)
{
    loans l = {.n = 0};
    inner->gemm(transpose_a, transpose_b, m, n, k, LEND(a, m * k), LEND(b, k * n), accumulate, GIVE(c, m * n));
    take_back(&l);
}

static void gemm_rows(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_rows,
                      const void *a, const void *b, bool accumulate, void *c)
{
    loans l = {.n = 0};
    inner->gemm_rows(transpose_a, transpose_b, m, n, k, first, n_rows, LEND(a, m * k), LEND(b, k * n), accumulate,
                     GIVE(c, m * n));
    take_back(&l);
}

static void gemm_terms(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_terms,
                       const void *a, const void *b, bool accumulate, void *c)
{
    loans l = {.n = 0};
    inner->gemm_terms(transpose_a, transpose_b, m, n, k, first, n_terms, LEND(a, m * k), LEND(b, k * n), accumulate,
                      GIVE(c, m * n));
    take_back(&l);
}

static void bias_add(size_t rows, size_t cols, const void *bias, void *y)
{
    loans l = {.n = 0};
    inner->bias_add(rows, cols, LEND(bias, cols), GIVE(y, rows * cols));
    take_back(&l);
}

static void bias_add_relu(size_t rows, size_t cols, const void *bias, void *y)
{
    loans l = {.n = 0};
    inner->bias_add_relu(rows, cols, LEND(bias, cols), GIVE(y, rows * cols));
    take_back(&l);
}

static void relu(size_t n_elems, const void *x, void *y)
{
    loans l = {.n = 0};
    inner->relu(n_elems, LEND(x, n_elems), GIVE(y, n_elems));
    take_back(&l);
}

static void relu_backward(size_t n_elems, const void *y, const void *dy, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->relu_backward(n_elems, LEND(y, n_elems), LEND(dy, n_elems), accumulate, GIVE(dx, n_elems));
    take_back(&l);
}

static void column_sums(size_t rows, size_t cols, const void *x, bool accumulate, void *sums)
{
    loans l = {.n = 0};
    inner->column_sums(rows, cols, LEND(x, rows * cols), accumulate, GIVE(sums, cols));
    take_back(&l);
}

static void relu_backward_column_sums(size_t rows, size_t cols, const void *y, void *dy, bool accumulate, void *sums)
{
    loans l = {.n = 0};
    inner->relu_backward_column_sums(rows, cols, LEND(y, rows * cols), GIVE(dy, rows * cols), accumulate,
                                     GIVE(sums, cols));
    take_back(&l);
}

static void softmax_cross_entropy(size_t rows, size_t cols, const void *logits, const uint32_t *labels,
                                  double smoothing, void *probabilities, void *loss)
{
    loans l = {.n = 0};
    inner->softmax_cross_entropy(rows, cols, LEND(logits, rows * cols), LEND(labels, rows), smoothing,
                                 GIVE(probabilities, rows * cols), GIVE(loss, 1));
    take_back(&l);
}

static void softmax_cross_entropy_backward(size_t rows, size_t cols, const void *probabilities, const uint32_t *labels,
                                           double smoothing, const void *dloss, bool accumulate, void *dlogits)
{
    loans l = {.n = 0};
    inner->softmax_cross_entropy_backward(rows, cols, LEND(probabilities, rows * cols), LEND(labels, rows), smoothing,
                                          LEND(dloss, 1), accumulate, GIVE(dlogits, rows * cols));
    take_back(&l);
}

static uint64_t count_correct(size_t rows, size_t cols, const void *logits, const uint32_t *labels)
{
    loans l = {.n = 0};
    const uint64_t result = inner->count_correct(rows, cols, LEND(logits, rows * cols), LEND(labels, rows));
    take_back(&l);
    return result;
}

static void fill(size_t n_elems, double value, void *x)
{
    loans l = {.n = 0};
    inner->fill(n_elems, value, GIVE(x, n_elems));
    take_back(&l);
}

static void scaled(size_t n_elems, double factor, const void *x, bool accumulate, void *y)
{
    loans l = {.n = 0};
    inner->scaled(n_elems, factor, LEND(x, n_elems), accumulate, GIVE(y, n_elems));
    take_back(&l);
}

static double get(const void *x, size_t index)
{
    loans l = {.n = 0};
    const double result = inner->get(LEND(x, index + 1), index);
    take_back(&l);
    return result;
}

static void conv_forward(const sg_conv_shape *s, const void *x, const void *weight, const void *bias, void *scratch,
                         void *y)
{
    loans l = {.n = 0};
    inner->conv->forward(s, LEND(x, s->images * s->channels * s->height * s->width),
                         LEND(weight, s->outputs * (s->channels / s->groups) * s->kernel_height * s->kernel_width),
                         LEND(bias, s->outputs), LEND(scratch, inner->conv->scratch_elems(s)),
                         GIVE(y, s->images * s->outputs * s->out_height * s->out_width));
    take_back(&l);
}

static void conv_backward_input(const sg_conv_shape *s, const void *dy, const void *weight, bool accumulate,
                                void *scratch, void *dx)
{
    loans l = {.n = 0};
    inner->conv->backward_input(
        s, LEND(dy, s->images * s->outputs * s->out_height * s->out_width),
        LEND(weight, s->outputs * (s->channels / s->groups) * s->kernel_height * s->kernel_width), accumulate,
        LEND(scratch, inner->conv->scratch_elems(s)), GIVE(dx, s->images * s->channels * s->height * s->width));
    take_back(&l);
}

static void conv_backward_weight(const sg_conv_shape *s, const void *x, const void *dy, bool accumulate, void *scratch,
                                 void *dweight)
{
    loans l = {.n = 0};
    inner->conv->backward_weight(
        s, LEND(x, s->images * s->channels * s->height * s->width),
        LEND(dy, s->images * s->outputs * s->out_height * s->out_width), accumulate,
        LEND(scratch, inner->conv->scratch_elems(s)),
        GIVE(dweight, s->outputs * (s->channels / s->groups) * s->kernel_height * s->kernel_width));
    take_back(&l);
}

static void conv_plane_sums(size_t images, size_t channels, size_t plane, const void *x, bool accumulate, void *sums)
{
    loans l = {.n = 0};
    inner->conv->plane_sums(images, channels, plane, LEND(x, images * channels * plane), accumulate,
                            GIVE(sums, channels));
    take_back(&l);
}

static void pool_max(const sg_pool_shape *s, const void *x, void *y, uint8_t *place)
{
    loans l = {.n = 0};
    inner->pool->max(s, LEND(x, s->planes * s->height * s->width), GIVE(y, s->planes * s->out_height * s->out_width),
                     lend(&l, place, s->planes * s->out_height * s->out_width, true));
    take_back(&l);
}

static void pool_max_backward(const sg_pool_shape *s, const void *dy, const uint8_t *place, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->pool->max_backward(s, LEND(dy, s->planes * s->out_height * s->out_width),
                              lend(&l, place, s->planes * s->out_height * s->out_width, false), accumulate,
                              GIVE(dx, s->planes * s->height * s->width));
    take_back(&l);
}

static void pool_average(const sg_pool_shape *s, const void *x, void *y)
{
    loans l = {.n = 0};
    inner->pool->average(s, LEND(x, s->planes * s->height * s->width),
                         GIVE(y, s->planes * s->out_height * s->out_width));
    take_back(&l);
}

static void pool_average_backward(const sg_pool_shape *s, const void *dy, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->pool->average_backward(s, LEND(dy, s->planes * s->out_height * s->out_width), accumulate,
                                  GIVE(dx, s->planes * s->height * s->width));
    take_back(&l);
}

static void pool_row_means(size_t rows, size_t cols, const void *x, void *y)
{
    loans l = {.n = 0};
    inner->pool->row_means(rows, cols, LEND(x, rows * cols), GIVE(y, rows));
    take_back(&l);
}

static void pool_row_means_backward(size_t rows, size_t cols, const void *dy, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->pool->row_means_backward(rows, cols, LEND(dy, rows), accumulate, GIVE(dx, rows * cols));
    take_back(&l);
}

static void elementwise_unary(sg_unary function, double parameter, size_t n_elems, const void *x, void *y)
{
    loans l = {.n = 0};
    inner->elementwise->unary(function, parameter, n_elems, LEND(x, n_elems), GIVE(y, n_elems));
    take_back(&l);
}

static void elementwise_unary_backward(sg_unary function, double parameter, size_t n_elems, const void *x,
                                       const void *y, const void *dy, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->elementwise->unary_backward(function, parameter, n_elems, LEND(x, n_elems), LEND(y, n_elems),
                                       LEND(dy, n_elems), accumulate, GIVE(dx, n_elems));
    take_back(&l);
}

static void elementwise_multiply(size_t n_elems, const void *a, const void *b, bool accumulate, void *y)
{
    loans l = {.n = 0};
    inner->elementwise->multiply(n_elems, LEND(a, n_elems), LEND(b, n_elems), accumulate, GIVE(y, n_elems));
    take_back(&l);
}

static void elementwise_dropout_scales(uint64_t seed, uint64_t stream, uint64_t first, double rate, size_t n_elems,
                                       void *scales)
{
    loans l = {.n = 0};
    inner->elementwise->dropout_scales(seed, stream, first, rate, n_elems, GIVE(scales, n_elems));
    take_back(&l);
}

static void norm_batch_statistics(const sg_norm_shape *s, const void *x, void *mean, void *variance)
{
    loans l = {.n = 0};
    inner->norm->batch_statistics(s, LEND(x, s->images * s->channels * s->plane), GIVE(mean, s->channels),
                                  GIVE(variance, s->channels));
    take_back(&l);
}

static void norm_inverse_deviation(size_t channels, double epsilon, const void *variance, void *inverse)
{
    loans l = {.n = 0};
    inner->norm->inverse_deviation(channels, epsilon, LEND(variance, channels), GIVE(inverse, channels));
    take_back(&l);
}

static void norm_batch_forward(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,
                               const void *gamma, const void *beta, bool relu, void *y)
{
    loans l = {.n = 0};
    inner->norm->batch_forward(s, LEND(x, s->images * s->channels * s->plane), LEND(mean, s->channels),
                               LEND(inverse, s->channels), LEND(gamma, s->channels), LEND(beta, s->channels), relu,
                               GIVE(y, s->images * s->channels * s->plane));
    take_back(&l);
}

static void norm_batch_sums(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,
                            const void *dy, void *sums)
{
    loans l = {.n = 0};
    inner->norm->batch_sums(s, LEND(x, s->images * s->channels * s->plane), LEND(mean, s->channels),
                            LEND(inverse, s->channels), LEND(dy, s->images * s->channels * s->plane),
                            GIVE(sums, 2 * s->channels));
    take_back(&l);
}

static void norm_batch_backward(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,
                                const void *gamma, const void *dy, const void *sums, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->norm->batch_backward(s, LEND(x, s->images * s->channels * s->plane), LEND(mean, s->channels),
                                LEND(inverse, s->channels), LEND(gamma, s->channels),
                                LEND(dy, s->images * s->channels * s->plane), LEND(sums, 2 * s->channels), accumulate,
                                GIVE(dx, s->images * s->channels * s->plane));
    take_back(&l);
}

static void norm_layer_forward(size_t rows, size_t cols, double epsilon, const void *x, const void *gamma,
                               const void *beta, void *mean, void *inverse, void *y)
{
    loans l = {.n = 0};
    inner->norm->layer_forward(rows, cols, epsilon, LEND(x, rows * cols), LEND(gamma, cols), LEND(beta, cols),
                               GIVE(mean, rows), GIVE(inverse, rows), GIVE(y, rows * cols));
    take_back(&l);
}

static void norm_layer_backward(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                                const void *gamma, const void *dy, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->norm->layer_backward(rows, cols, LEND(x, rows * cols), LEND(mean, rows), LEND(inverse, rows),
                                LEND(gamma, cols), LEND(dy, rows * cols), accumulate, GIVE(dx, rows * cols));
    take_back(&l);
}

static void norm_layer_backward_gamma(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                                      const void *dy, bool accumulate, void *dgamma)
{
    loans l = {.n = 0};
    inner->norm->layer_backward_gamma(rows, cols, LEND(x, rows * cols), LEND(mean, rows), LEND(inverse, rows),
                                      LEND(dy, rows * cols), accumulate, GIVE(dgamma, cols));
    take_back(&l);
}

static void norm_softmax(size_t rows, size_t cols, const void *x, void *y)
{
    loans l = {.n = 0};
    inner->norm->softmax(rows, cols, LEND(x, rows * cols), GIVE(y, rows * cols));
    take_back(&l);
}

static void norm_softmax_backward(size_t rows, size_t cols, const void *y, const void *dy, bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->norm->softmax_backward(rows, cols, LEND(y, rows * cols), LEND(dy, rows * cols), accumulate,
                                  GIVE(dx, rows * cols));
    take_back(&l);
}

static void move_rows(size_t rows, size_t cols, const void *from, size_t from_stride, bool accumulate, void *to,
                      size_t to_stride)
{
    loans l = {.n = 0};
    inner->move->rows(rows, cols, LEND(from, reach(rows, cols, from_stride)), from_stride, accumulate,
                      GIVE(to, reach(rows, cols, to_stride)), to_stride);
    take_back(&l);
}

static void move_gather(size_t n_ids, size_t cols, const void *table, const uint32_t *ids, void *y)
{
    loans l = {.n = 0};
    inner->move->gather(n_ids, cols, LEND(table, n_rows_of(n_ids, ids) * cols), LEND(ids, n_ids),
                        GIVE(y, n_ids * cols));
    take_back(&l);
}

static void move_scatter(size_t n_ids, size_t n_rows, size_t cols, const void *dy, const uint32_t *ids, bool accumulate,
                         void *dtable)
{
    loans l = {.n = 0};
    inner->move->scatter(n_ids, n_rows, cols, LEND(dy, n_ids * cols), LEND(ids, n_ids), accumulate,
                         GIVE(dtable, n_rows * cols));
    take_back(&l);
}

static void move_upsample(size_t planes, size_t height, size_t width, size_t factor, const void *x, void *y)
{
    loans l = {.n = 0};
    inner->move->upsample(planes, height, width, factor, LEND(x, planes * height * width),
                          GIVE(y, planes * height * width * factor * factor));
    take_back(&l);
}

static void move_upsample_backward(size_t planes, size_t height, size_t width, size_t factor, const void *dy,
                                   bool accumulate, void *dx)
{
    loans l = {.n = 0};
    inner->move->upsample_backward(planes, height, width, factor, LEND(dy, planes * height * width * factor * factor),
                                   accumulate, GIVE(dx, planes * height * width));
    take_back(&l);
}

static void move_fill_planes(size_t images, size_t channels, size_t plane, const void *values, void *x)
{
    loans l = {.n = 0};
    inner->move->fill_planes(images, channels, plane, LEND(values, channels), GIVE(x, images * channels * plane));
    take_back(&l);
}

static size_t conv_scratch_elems(const sg_conv_shape *s)
{
    return inner->conv->scratch_elems(s);
}

static const sg_kernel_conv convs = {.scratch_elems = conv_scratch_elems,
                                     .forward = conv_forward,
                                     .backward_input = conv_backward_input,
                                     .backward_weight = conv_backward_weight,
                                     .plane_sums = conv_plane_sums};
static const sg_kernel_pool pools = {.max = pool_max,
                                     .max_backward = pool_max_backward,
                                     .average = pool_average,
                                     .average_backward = pool_average_backward,
                                     .row_means = pool_row_means,
                                     .row_means_backward = pool_row_means_backward};
static const sg_kernel_elementwise elementwises = {.unary = elementwise_unary,
                                                   .unary_backward = elementwise_unary_backward,
                                                   .multiply = elementwise_multiply,
                                                   .dropout_scales = elementwise_dropout_scales};
static const sg_kernel_norm norms = {.batch_statistics = norm_batch_statistics,
                                     .inverse_deviation = norm_inverse_deviation,
                                     .batch_forward = norm_batch_forward,
                                     .batch_sums = norm_batch_sums,
                                     .batch_backward = norm_batch_backward,
                                     .layer_forward = norm_layer_forward,
                                     .layer_backward = norm_layer_backward,
                                     .layer_backward_gamma = norm_layer_backward_gamma,
                                     .softmax = norm_softmax,
                                     .softmax_backward = norm_softmax_backward};
static const sg_kernel_move moves = {.rows = move_rows,
                                     .gather = move_gather,
                                     .scatter = move_scatter,
                                     .upsample = move_upsample,
                                     .upsample_backward = move_upsample_backward,
                                     .fill_planes = move_fill_planes};

const sg_kernel *sg_staged(const sg_kernel *kernel)
{
    static sg_kernel table = {.elem_bytes = sizeof(float),
                              .gemm = gemm,
                              .gemm_rows = gemm_rows,
                              .gemm_terms = gemm_terms,
                              .bias_add = bias_add,
                              .bias_add_relu = bias_add_relu,
                              .relu = relu,
                              .relu_backward = relu_backward,
                              .column_sums = column_sums,
                              .relu_backward_column_sums = relu_backward_column_sums,
                              .softmax_cross_entropy = softmax_cross_entropy,
                              .softmax_cross_entropy_backward = softmax_cross_entropy_backward,
                              .count_correct = count_correct,
                              .fill = fill,
                              .scaled = scaled,
                              .get = get,
                              .conv = &convs,
                              .pool = &pools,
                              .elementwise = &elementwises,
                              .norm = &norms,
                              .move = &moves};
    SG_ASSERT(kernel->device != NULL && kernel->elem_bytes == sizeof(float));
    inner = kernel;
    table.name = kernel->name;
    return &table;
}
