/* worker/cli/bench/pass.c - see pass.h. */
#include "worker/cli/bench/pass.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kernels/update.h"

#define FRAME_BYTES  ((size_t)16384)
#define HEADER_BYTES ((size_t)9)
#define BUFFER_BYTES ((size_t)65536) /* where the frames' memory ends and goes on elsewhere */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

sg_span *sg_bench_pass_receive(size_t n_bytes, unsigned char **received, size_t *n_spans)
{
    size_t most = n_bytes / FRAME_BYTES + n_bytes / BUFFER_BYTES + 4;
    unsigned char *memory = sg_try_alloc_aligned(n_bytes + (most + 2) * HEADER_BYTES);
    *received = memory;
    *n_spans = 0;
    if (memory == NULL)
        return NULL;
    sg_span *spans = sg_xcalloc(most, sizeof(*spans));
    size_t at = HEADER_BYTES, frame_left = FRAME_BYTES;
    for (size_t left = n_bytes; left > 0;) {
        size_t n = least(least(frame_left, left), BUFFER_BYTES - at % BUFFER_BYTES);
        SG_ASSERT(*n_spans < most);
        spans[(*n_spans)++] = (sg_span){memory + at, n};
        memset(memory + at, 0x3c, n); /* whichever four of them: 0.0115 */
        at += n;
        left -= n;
        frame_left -= n;
        if (frame_left == 0) {
            frame_left = FRAME_BYTES;
            at += HEADER_BYTES;
        }
    }
    return spans;
}

static bool make_gradients(sg_bench_pass *p, size_t part)
{
    p->spans[part] = sg_bench_pass_receive(p->n_elems * sizeof(float), &p->received[part], &p->n_spans);
    return p->spans[part] != NULL;
}

sg_status sg_bench_pass_init(sg_bench_pass *p, size_t array_bytes, size_t slice_bytes, sg_error *err)
{
    *p = (sg_bench_pass){.n_elems = array_bytes / sizeof(float), .slice_bytes = slice_bytes};
    p->old_values = sg_try_alloc_aligned(array_bytes);
    p->new_values = sg_try_alloc_aligned(array_bytes);
    p->velocity = sg_try_alloc_aligned(array_bytes);
    bool made = p->old_values != NULL && p->new_values != NULL && p->velocity != NULL;
    for (size_t i = 0; i < SG_BENCH_PASS_MAX_PARTS && made; i++)
        made = make_gradients(p, i);
    if (!made)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for arrays of %zu bytes to measure memory with", array_bytes);
    for (size_t i = 0; i < p->n_elems; i++) {
        p->old_values[i] = 0.5f;
        p->new_values[i] = p->velocity[i] = 0;
    }
    return SG_OK;
}

void sg_bench_pass_deinit(sg_bench_pass *p)
{
    free(p->old_values);
    free(p->new_values);
    free(p->velocity);
    for (size_t i = 0; i < SG_BENCH_PASS_MAX_PARTS; i++) {
        free(p->received[i]);
        free(p->spans[i]);
    }
    *p = (sg_bench_pass){0};
}

double sg_bench_pass_run(sg_bench_pass *p, size_t n_parts)
{
    static const sg_update update = {.rule = SG_RULE_MOMENTUM, .learning_rate = 0.01f, .momentum = 0.9f, .count = 1};
    sg_span_reader readers[SG_BENCH_PASS_MAX_PARTS];
    for (size_t i = 0; i < n_parts; i++)
        sg_span_reader_init(&readers[i], p->spans[i], p->n_spans, SIZE_MAX);
    size_t n_slice = p->slice_bytes / sizeof(float);
    uint64_t began_ns = sg_clock_ns();
    for (size_t at = 0; at < p->n_elems; at += n_slice) {
        size_t n = p->n_elems - at < n_slice ? p->n_elems - at : n_slice;
        sg_update_part parts[SG_BENCH_PASS_MAX_PARTS];
        for (size_t i = 0; i < n_parts; i++) {
            parts[i] = (sg_update_part){.scale = 1.0f / (float)n_parts};
            SG_ASSERT(sg_span_reader_take(&readers[i], n * sizeof(float), &parts[i].gradient));
        }
        (void)sg_update_apply(&update, n, p->old_values + at, p->new_values + at,
                              (float *const[SG_UPDATE_MAX_SLOTS]){p->velocity + at}, parts, n_parts);
    }
    return (double)(sg_clock_ns() - began_ns) / 1e9;
}

double sg_bench_pass_bytes(const sg_bench_pass *p, size_t n_parts)
{
    return (double)p->n_elems * (double)((4 + n_parts) * sizeof(float));
}
