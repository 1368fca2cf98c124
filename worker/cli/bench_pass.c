/* worker/cli/bench_pass.c - see bench_pass.h. */
#include "worker/cli/bench_pass.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kernels/update.h"

/* What arrives lies in frames of 16 KiB with a header of 9 bytes before each, so at odd addresses: elements straddle
 * two spans. */
#define FRAME_BYTES  ((size_t)16384)
#define HEADER_BYTES ((size_t)9)

static bool make_gradients(sg_bench_pass *p, size_t part)
{
    size_t n_bytes = p->n_elems * sizeof(float);
    size_t payload = FRAME_BYTES - HEADER_BYTES;
    p->n_spans = (n_bytes + payload - 1) / payload;
    p->received[part] = sg_try_alloc_aligned(p->n_spans * FRAME_BYTES);
    p->spans[part] = sg_xcalloc(p->n_spans, sizeof(sg_span));
    if (p->received[part] == NULL)
        return false;
    memset(p->received[part], 0x3c, p->n_spans * FRAME_BYTES); /* every float of such bytes is 0.0115 */
    for (size_t i = 0; i < p->n_spans; i++) {
        size_t left = n_bytes - i * payload;
        p->spans[part][i] = (sg_span){.data = p->received[part] + i * FRAME_BYTES + HEADER_BYTES,
                                      .n_bytes = left < payload ? left : payload};
    }
    return true;
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
