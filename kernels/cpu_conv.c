/* kernels/cpu_conv.c - convolutions as matrix products.
 *
 * Block by block of output rows, over all images, the windows of x are unfolded into the columns of a matrix, whose
 * product with the weight is the output: so a block stays in the cache, and small images share one. Going back, the
 * gradient of the columns is folded: added where they came from. Per group:
 *
 *     columns[terms, block]   terms = channels of the group * elements of a window
 *     result[outputs of the group, block] = weight * columns */
#include "kernels/cpu.h"
#include "kernels/onednn.h"

#define BLOCK_ELEMS ((size_t)64 << 10) /* of columns and result together: 256 KiB, a part of a second-level cache */
#define MIN_BLOCK   ((size_t)384)      /* positions; with fewer a product is slow */

typedef struct block {
    size_t first, n; /* rows of the output, over all images */
    size_t group;
} block;

static size_t terms_of(const sg_conv_shape *s)
{
    return s->channels / s->groups * s->kernel_height * s->kernel_width;
}

/* Elements that are copied at once, whatever the row's width: so a buffer goes on for so many elements behind its end.
 */
#define WIDE ((size_t)16)

/* Windows that move on by an element, of more than one: their rows are taken from a copy of the channel with its
 * padding, so that all are whole and as wide as the output's. */
static bool is_padded(const sg_conv_shape *s)
{
    return s->stride == 1 && s->kernel_height * s->kernel_width > 1;
}

static size_t padded_width(const sg_conv_shape *s)
{
    return s->width + 2 * s->padding;
}

/* Rows of the output that are made at once. */
static size_t block_rows(const sg_conv_shape *s)
{
    const size_t fitting = BLOCK_ELEMS / (terms_of(s) + s->outputs / s->groups);
    const size_t positions = fitting > MIN_BLOCK ? fitting : MIN_BLOCK;
    const size_t n = (positions + s->out_width - 1) / s->out_width;
    const size_t all = s->images * s->out_height;
    return n < all ? n : all;
}

/* Columns and result. */
static size_t product_elems(const sg_conv_shape *s)
{
    return block_rows(s) * s->out_width * (terms_of(s) + s->outputs / s->groups) + WIDE;
}

static size_t scratch_elems(const sg_conv_shape *s)
{
    const size_t rows = block_rows(s), images = rows / s->out_height + 2; /* that a block may reach into */
    const size_t padded = (rows + images * (s->kernel_height - 1)) * padded_width(s) + WIDE;
    return product_elems(s) + (is_padded(s) ? padded : 0);
}

/* A row of columns: one element of the windows of one channel, for all positions of a block. */
typedef struct term {
    size_t channel, ky, kx;
    size_t lo, hi; /* output columns whose element lies in the image */
} term;

static term term_of(const sg_conv_shape *s, const block *b, size_t index)
{
    const size_t window = s->kernel_height * s->kernel_width;
    term t = {.channel = b->group * (s->channels / s->groups) + index / window,
              .ky = index % window / s->kernel_width,
              .kx = index % s->kernel_width};
    t.lo = t.kx >= s->padding ? 0 : (s->padding - t.kx + s->stride - 1) / s->stride;
    const size_t end = s->width + s->padding; /* of the image, in the padded row */
    t.hi = end <= t.kx ? 0 : (end - t.kx + s->stride - 1) / s->stride;
    t.hi = t.hi < s->out_width ? t.hi : s->out_width;
    t.lo = t.lo < t.hi ? t.lo : t.hi;
    return t;
}

/* The part of a block that lies in one image: output rows [first, first + n) of it. */
typedef struct segment {
    size_t image, first, n;
} segment;

static segment segment_at(const sg_conv_shape *s, const block *b, size_t done)
{
    segment g = {.image = (b->first + done) / s->out_height, .first = (b->first + done) % s->out_height};
    const size_t of_image = s->out_height - g.first, of_block = b->n - done;
    g.n = of_image < of_block ? of_image : of_block;
    return g;
}

/* Makes of g its rows whose element lies in the image, and returns how many before them do not. */
static size_t inside(const sg_conv_shape *s, const term *t, segment *g)
{
    const size_t before = t->ky >= s->padding ? 0 : (s->padding - t->ky + s->stride - 1) / s->stride;
    const size_t end = s->height + s->padding;
    const size_t after = end <= t->ky ? 0 : (end - t->ky + s->stride - 1) / s->stride; /* the first beyond */
    const size_t lo = before > g->first ? before : g->first;
    const size_t hi = after < g->first + g->n ? after : g->first + g->n;
    const size_t skipped = lo < hi ? lo - g->first : g->n;
    g->n = lo < hi ? hi - lo : 0;
    g->first = lo;
    return skipped;
}

/* Where output position (first row of g, column lo) finds its element. */
static size_t source_of(const sg_conv_shape *s, const term *t, const segment *g)
{
    const size_t plane = (g->image * s->channels + t->channel) * s->height;
    return (plane + g->first * s->stride + t->ky - s->padding) * s->width + t->lo * s->stride + t->kx - s->padding;
}

/* Rows of the output are as wide as those of the image: what a term takes from a segment is one run of elements, but
 * for the margins between. */
static bool is_run(const sg_conv_shape *s)
{
    return s->stride == 1 && s->out_width == s->width;
}

SG_ISA_INLINE void unfold_segment(const sg_conv_shape *s, const term *t, segment g, const float *x, float *to)
{
    const size_t width = s->out_width, all = g.n;
    const size_t before = inside(s, t, &g);
    memset(to, 0, (t->lo < t->hi ? before : all) * width * sizeof(float));
    if (t->lo == t->hi)
        return;
    to += before * width;
    memset(to + g.n * width, 0, (all - before - g.n) * width * sizeof(float));
    if (g.n == 0)
        return;
    const float *from = x + source_of(s, t, &g);
    if (is_run(s)) { /* windows are elements, so that there are no margins */
        memcpy(to, from, g.n * width * sizeof(float));
        return;
    }
    for (size_t r = 0; r < g.n; r++, from += s->stride * s->width, to += width) {
        for (size_t i = 0; i < t->lo; i++)
            to[i] = 0;
        for (size_t i = 0; i < t->hi - t->lo; i++)
            to[t->lo + i] = from[i * s->stride];
        for (size_t i = t->hi; i < width; i++)
            to[i] = 0;
    }
}

SG_ISA_INLINE void clear_margins(const term *t, size_t rows, size_t width, float *to)
{
    for (size_t r = 0; r < rows && t->hi - t->lo < width; r++, to += width) {
        for (size_t i = 0; i < t->lo; i++)
            to[i] = 0;
        for (size_t i = t->hi; i < width; i++)
            to[i] = 0;
    }
}

/* from is scratch: the margins are cleared there, so that a run can be added as one. */
SG_ISA_INLINE void fold_segment(const sg_conv_shape *s, const term *t, segment g, float *from, float *dx)
{
    const size_t width = s->out_width;
    from += inside(s, t, &g) * width;
    if (g.n == 0 || t->lo == t->hi)
        return;
    float *restrict to = dx + source_of(s, t, &g);
    if (is_run(s)) {
        clear_margins(t, g.n, width, from);
        for (size_t i = 0; i < (g.n - 1) * width + t->hi - t->lo; i++)
            to[i] += from[t->lo + i];
    } else {
        for (size_t r = 0; r < g.n; r++)
            for (size_t i = 0; i < t->hi - t->lo; i++)
                to[(r * s->width + i) * s->stride] += from[r * width + t->lo + i];
    }
}

SG_ISA_INLINE void unfold_terms(const sg_conv_shape *s, const block *b, const float *x, float *columns)
{
    for (size_t i = 0; i < terms_of(s); i++) {
        const term t = term_of(s, b, i);
        for (size_t done = 0; done < b->n;) {
            const segment g = segment_at(s, b, done);
            unfold_segment(s, &t, g, x, columns + done * s->out_width);
            done += g.n;
        }
        columns += b->n * s->out_width;
    }
}

SG_ISA_INLINE void fold(const sg_conv_shape *s, const block *b, float *columns, float *dx)
{
    for (size_t i = 0; i < terms_of(s); i++) {
        const term t = term_of(s, b, i);
        for (size_t done = 0; done < b->n;) {
            const segment g = segment_at(s, b, done);
            fold_segment(s, &t, g, columns + done * s->out_width, dx);
            done += g.n;
        }
        columns += b->n * s->out_width;
    }
}

/* The rows of a channel that a block's windows cover, with their padding, image after image. */
SG_ISA_INLINE void pad_channel(const sg_conv_shape *s, const block *b, size_t channel, const float *x,
                               float *restrict padded)
{
    const size_t width = padded_width(s), padding = s->padding;
    for (size_t done = 0; done < b->n;) {
        const segment g = segment_at(s, b, done);
        const float *plane = x + (g.image * s->channels + channel) * s->height * s->width;
        for (size_t r = g.first; r < g.first + g.n + s->kernel_height - 1; r++, padded += width) {
            memset(padded, 0, width * sizeof(float));
            if (r >= padding && r - padding < s->height)
                sg_cpu_copy(s->width, plane + (r - padding) * s->width, padded + padding);
        }
        done += g.n;
    }
}

/* n elements and what is behind them: the row behind is written later. */
SG_ISA_INLINE void copy_wide(size_t n, const float *restrict from, float *restrict to)
{
    for (size_t i = 0; i < n; i += WIDE)
        __builtin_memcpy(to + i, from + i, WIDE * sizeof(float));
}

/* The term (ky, kx) of a padded channel. */
SG_ISA_INLINE void unfold_padded(const sg_conv_shape *s, const block *b, const float *from, float *to)
{
    const size_t width = padded_width(s);
    for (size_t done = 0; done < b->n;) {
        const segment g = segment_at(s, b, done);
        for (size_t r = 0; r < g.n; r++, from += width, to += s->out_width)
            copy_wide(s->out_width, from, to);
        from += (s->kernel_height - 1) * width;
        done += g.n;
    }
}

/* Writes behind the columns, too: WIDE elements at most. */
SG_ISA_INLINE void unfold(const sg_conv_shape *s, const block *b, const float *x, float *columns)
{
    if (!is_padded(s)) {
        unfold_terms(s, b, x, columns);
        return;
    }
    float *padded = columns + product_elems(s);
    const size_t n_channels = s->channels / s->groups;
    for (size_t c = 0; c < n_channels; c++) {
        pad_channel(s, b, b->group * n_channels + c, x, padded);
        for (size_t ky = 0; ky < s->kernel_height; ky++)
            for (size_t kx = 0; kx < s->kernel_width; kx++, columns += b->n * s->out_width)
                unfold_padded(s, b, padded + ky * padded_width(s) + kx, columns);
    }
}

/* Between result[outputs of the group, block] and y: with `store` there, with the bias added, otherwise back. */
SG_ISA_INLINE void move_result(const sg_conv_shape *s, const block *b, bool store, const float *bias, float *result,
                               float *y)
{
    const size_t outputs = s->outputs / s->groups, width = s->out_width;
    for (size_t o = 0; o < outputs; o++) {
        const float added = bias ? bias[b->group * outputs + o] : 0;
        for (size_t done = 0; done < b->n;) {
            const segment g = segment_at(s, b, done);
            const size_t plane = (g.image * s->outputs + b->group * outputs + o) * s->out_height;
            float *restrict there = y + (plane + g.first) * width;
            float *restrict here = result + (o * b->n + done) * width;
            for (size_t i = 0; store && i < g.n * width; i++)
                there[i] = here[i] + added;
            if (!store)
                sg_cpu_copy(g.n * width, there, here);
            done += g.n;
        }
    }
}

/* The next block, all groups of it one after the other; b begins as zeros. */
static bool next_block(const sg_conv_shape *s, block *b)
{
    const size_t all = s->images * s->out_height;
    if (b->n > 0 && ++b->group < s->groups)
        return true;
    b->group = 0;
    b->first += b->n;
    const size_t n = block_rows(s);
    b->n = all - b->first < n ? all - b->first : n;
    return b->n > 0;
}

static sg_cpu_operand weight_of(const sg_conv_shape *s, const block *b, const float *weight, bool transpose)
{
    const size_t n_terms = terms_of(s);
    return (sg_cpu_operand){transpose, weight + b->group * (s->outputs / s->groups) * n_terms, n_terms};
}

SG_ISA_INLINE void forward_loop(sg_cpu_multiply_fn *multiply, const sg_conv_shape *s, const float *x,
                                const float *weight, const float *bias, float *columns, float *y)
{
    const size_t n_terms = terms_of(s), outputs = s->outputs / s->groups;
    for (block b = {0}; next_block(s, &b);) {
        const size_t n = b.n * s->out_width;
        float *result = columns + n_terms * n;
        unfold(s, &b, x, columns);
        multiply(outputs, n, n_terms, weight_of(s, &b, weight, false), (sg_cpu_operand){false, columns, n}, false,
                 result, n);
        move_result(s, &b, true, bias, result, y);
    }
}

SG_ISA_INLINE void backward_input_loop(sg_cpu_multiply_fn *multiply, const sg_conv_shape *s, const float *dy,
                                       const float *weight, bool accumulate, float *columns, float *dx)
{
    const size_t n_terms = terms_of(s), outputs = s->outputs / s->groups;
    if (!accumulate)
        memset(dx, 0, s->images * s->channels * s->height * s->width * sizeof(float));
    for (block b = {0}; next_block(s, &b);) {
        const size_t n = b.n * s->out_width;
        float *result = columns + n_terms * n;
        move_result(s, &b, false, NULL, result, (float *)(uintptr_t)dy);
        multiply(n_terms, n, outputs, weight_of(s, &b, weight, true), (sg_cpu_operand){false, result, n}, false,
                 columns, n);
        fold(s, &b, columns, dx);
    }
}

SG_ISA_INLINE void backward_weight_loop(sg_cpu_multiply_fn *multiply, const sg_conv_shape *s, const float *x,
                                        const float *dy, bool accumulate, float *columns, float *dweight)
{
    const size_t n_terms = terms_of(s), outputs = s->outputs / s->groups;
    if (!accumulate)
        memset(dweight, 0, s->outputs * n_terms * sizeof(float));
    for (block b = {0}; next_block(s, &b);) {
        const size_t n = b.n * s->out_width;
        float *result = columns + n_terms * n;
        unfold(s, &b, x, columns); /* first: it writes behind them, too */
        move_result(s, &b, false, NULL, result, (float *)(uintptr_t)dy);
        multiply(outputs, n_terms, n, (sg_cpu_operand){false, result, n}, (sg_cpu_operand){true, columns, n}, true,
                 dweight + b.group * outputs * n_terms, n_terms);
    }
}

SG_ISA_INLINE void plane_sums_loop(size_t images, size_t channels, size_t plane, const float *x, bool accumulate,
                                   float *sums)
{
    for (size_t c = 0; c < channels; c++) {
        double sum = accumulate ? (double)sums[c] : 0;
        for (size_t n = 0; n < images; n++)
            sum += sg_cpu_sum(plane, x + (n * channels + c) * plane);
        sums[c] = (float)sum;
    }
}

/* clang-format off */
#define VARIANT(name_, target, multiply_)                                                                                         \
    target static void forward_##name_(const sg_conv_shape *s, const void *x, const void *weight, const void *bias,    \
                                       void *scratch, void *y)                                                         \
    { forward_loop(multiply_, s, x, weight, bias, scratch, y); }                                                                  \
    target static void backward_input_##name_(const sg_conv_shape *s, const void *dy, const void *weight,              \
                                              bool accumulate, void *scratch, void *dx)                                \
    { backward_input_loop(multiply_, s, dy, weight, accumulate, scratch, dx); }                                                   \
    target static void backward_weight_##name_(const sg_conv_shape *s, const void *x, const void *dy, bool accumulate, \
                                               void *scratch, void *dweight)                                           \
    { backward_weight_loop(multiply_, s, x, dy, accumulate, scratch, dweight); }                                                  \
    target static void plane_sums_##name_(size_t images, size_t channels, size_t plane, const void *x,                 \
                                          bool accumulate, void *sums)                                                 \
    { plane_sums_loop(images, channels, plane, x, accumulate, sums); }                                                 \
    const sg_kernel_conv sg_cpu_conv_##name_ = {                                                                       \
        .scratch_elems = scratch_elems, .forward = forward_##name_, .backward_input = backward_input_##name_,          \
        .backward_weight = backward_weight_##name_, .plane_sums = plane_sums_##name_,                                  \
    };
/* clang-format on */
VARIANT(portable, , sg_cpu_multiply)
VARIANT(avx2, SG_ISA_TARGET_AVX2, sg_cpu_multiply)
VARIANT(avx512, SG_ISA_TARGET_AVX512, sg_cpu_multiply)
#ifdef SG_ONEDNN
VARIANT(onednn, SG_ISA_TARGET_AVX512, sg_onednn_multiply)
#endif
