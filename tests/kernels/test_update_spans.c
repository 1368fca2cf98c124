/* tests/kernels/test_update_spans.c - contributions that lie scattered: the same bits as from a plain loop, however
 * they are cut; numbers that are not finite are found wherever they lie. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "kernels/update.h"
#include "kernels/update_rules.h"
#include "tests/support/seed.h"

TestSuite(update_spans, .timeout = 240);

#define MAX_PARTS 19 /* three groups */

/* How an array is cut. */
typedef enum cut { CUT_NONE, CUT_BYTES, CUT_SMALL, CUT_LARGE, CUT_COUNT } cut;

/* One array, cut. Each span ends where its block of memory ends, so that AddressSanitizer sees a read beyond it. */
typedef struct scattered {
    sg_span *spans;
    void **blocks;
    size_t n_spans, n_bytes;
} scattered;

static size_t width(sg_seed *seed, cut how, size_t left)
{
    size_t wanted = how == CUT_BYTES   ? 1
                    : how == CUT_SMALL ? sg_seed_below(seed, 70)
                    : how == CUT_LARGE ? sg_seed_below(seed, 5000)
                                       : left;
    return wanted < left ? wanted : left;
}

static scattered scatter(sg_seed *seed, const float *values, size_t n_elems, cut how)
{
    scattered s = {.n_bytes = n_elems * sizeof(float)};
    size_t capacity = 0;
    for (size_t at = 0; at < s.n_bytes;) {
        if (s.n_spans == capacity) {
            capacity = 2 * capacity + 4;
            s.spans = sg_xrealloc(s.spans, capacity, sizeof *s.spans);
            s.blocks = sg_xrealloc(s.blocks, capacity, sizeof *s.blocks);
        }
        size_t n = width(seed, how, s.n_bytes - at);
        size_t lead = sg_seed_below(seed, 8);
        uint8_t *block = sg_xcalloc(lead + n + (n == 0), 1);
        memcpy(block + lead, (const uint8_t *)values + at, n);
        s.blocks[s.n_spans] = block;
        s.spans[s.n_spans++] = (sg_span){.data = block + lead, .n_bytes = n};
        at += n;
    }
    return s;
}

static sg_span_reader read_all(const scattered *s)
{
    sg_span_reader reader;
    sg_span_reader_init(&reader, s->spans, s->n_spans, SIZE_MAX);
    return reader;
}

static void scattered_free(scattered *s)
{
    for (size_t i = 0; i < s->n_spans; i++)
        free(s->blocks[i]);
    free(s->blocks);
    free(s->spans);
}

/* Mostly numbers of usual size; some zeros of both signs, denormals and very large ones. */
static float *draw(sg_seed *seed, size_t n_elems)
{
    static const float special[] = {0.0F, -0.0F, 0x1p-149F, -0x1p-130F, FLT_MAX, -FLT_MAX, FLT_MIN};
    float *x = sg_xcalloc(n_elems + 1, sizeof *x);
    for (size_t i = 0; i < n_elems; i++)
        x[i] = sg_seed_below(seed, 32) == 0 ? special[sg_seed_below(seed, SG_ARRAY_LEN(special))]
                                            : ((float)sg_seed_below(seed, 1 << 24) - 0x1p23F) * 0x1p-22F;
    return x;
}

/* A slice at the end of a step. */
typedef struct fixture {
    sg_update update;
    size_t n_elems, n_parts;
    float *old_values, *slots[SG_UPDATE_MAX_SLOTS];
    float *gradients[MAX_PARTS], scales[MAX_PARTS];
} fixture;

static fixture fixture_draw(sg_seed *seed)
{
    fixture f = {.update = {.rule = (sg_rule)sg_seed_below(seed, SG_N_RULES),
                            .learning_rate = 0.1F,
                            .weight_decay = sg_seed_below(seed, 2) ? 0.01F : 0,
                            .momentum = 0.9F,
                            .beta1 = 0.9F,
                            .beta2 = 0.999F,
                            .epsilon = 1e-8F,
                            .count = 1 + sg_seed_below(seed, 5),
                            .members = sg_seed_below(seed, 4)},
                 .n_elems = sg_seed_below(seed, sg_seed_below(seed, 2) ? 40 : 4000),
                 .n_parts = 1 + sg_seed_below(seed, sg_seed_below(seed, 4) ? 9 : MAX_PARTS)};
    f.old_values = draw(seed, f.n_elems);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        f.slots[i] = draw(seed, f.n_elems);
    for (size_t i = 0; i < f.n_elems; i++)
        f.slots[1][i] = fabsf(f.slots[1][i]); /* Adam's second moment */
    for (size_t i = 0; i < f.n_parts; i++) {
        f.gradients[i] = draw(seed, f.n_elems);
        f.scales[i] = (float)(1 + sg_seed_below(seed, 99)) / (float)(100 * f.n_parts);
    }
    return f;
}

static void fixture_free(fixture *f)
{
    free(f->old_values);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        free(f->slots[i]);
    for (size_t i = 0; i < f->n_parts; i++)
        free(f->gradients[i]);
}

/* What a pass made. */
typedef struct outcome {
    float *new_values, *slots[SG_UPDATE_MAX_SLOTS];
} outcome;

static outcome outcome_make(const fixture *f)
{
    outcome o = {.new_values = sg_xcalloc(f->n_elems + 1, sizeof(float))};
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++) {
        o.slots[i] = sg_xcalloc(f->n_elems + 1, sizeof(float));
        memcpy(o.slots[i], f->slots[i], f->n_elems * sizeof(float));
    }
    return o;
}

static void outcome_free(outcome *o)
{
    free(o->new_values);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        free(o->slots[i]);
}

/* Any NaN is as good as another. */
static void assert_same(const float *a, const float *b, size_t n, const char *what, const sg_seed *seed)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(memcmp(&a[i], &b[i], sizeof a[i]) == 0 || (isnan(a[i]) && isnan(b[i])),
                  "seed %lu: %s differ at %zu of %zu: %a and %a", seed->first, what, i, n, (double)a[i], (double)b[i]);
}

/* Element by element. */
static outcome plain(const fixture *f)
{
    outcome o = outcome_make(f);
    sg_update_constants c = sg_update_constants_of(&f->update);
    for (size_t i = 0; i < f->n_elems; i++) {
        float sum = f->scales[0] * f->gradients[0][i];
        for (size_t part = 1; part < f->n_parts; part++)
            sum = fmaf(f->scales[part], f->gradients[part][i], sum);
        float w = f->old_values[i];
        switch (f->update.rule) {
        case SG_RULE_SGD:
            w = sg_update_sgd(&c, w, sum);
            break;
        case SG_RULE_MOMENTUM:
            w = sg_update_momentum(&c, w, sum, &o.slots[0][i]);
            break;
        case SG_RULE_NESTEROV:
            w = sg_update_nesterov(&c, w, sum, &o.slots[0][i]);
            break;
        case SG_RULE_ADAGRAD:
            w = sg_update_adagrad(&c, w, sum, &o.slots[0][i]);
            break;
        case SG_RULE_RMSPROP:
            w = sg_update_rmsprop(&c, w, sum, &o.slots[0][i]);
            break;
        case SG_RULE_ADAM:
            w = sg_update_adam(&c, w, sum, &o.slots[0][i], &o.slots[1][i]);
            break;
        case SG_RULE_ADAMW:
            w = sg_update_adamw(&c, w, sum, &o.slots[0][i], &o.slots[1][i]);
            break;
        case SG_RULE_AVERAGE:
            w = sg_update_average(&c, w, sum);
            break;
        case SG_RULE_LARS:
            w = sg_update_lars(&c, w, sum, &o.slots[0][i]);
            break;
        case SG_RULE_LAMB:
            w = sg_update_lamb(&c, w, sum, &o.slots[0][i], &o.slots[1][i]);
            break;
        }
        o.new_values[i] = w;
    }
    return o;
}

static void compare_with_plain(sg_seed *seed, sg_isa isa, const fixture *f, const outcome *want)
{
    scattered scattered_parts[MAX_PARTS];
    sg_update_part parts[MAX_PARTS];
    for (size_t i = 0; i < f->n_parts; i++) {
        scattered_parts[i] = scatter(seed, f->gradients[i], f->n_elems, (cut)sg_seed_below(seed, CUT_COUNT));
        parts[i] = (sg_update_part){.gradient = read_all(&scattered_parts[i]), .scale = f->scales[i]};
    }
    outcome got = outcome_make(f);
    cr_assert(
        sg_update_apply_as(isa, &f->update, f->n_elems, f->old_values, got.new_values, got.slots, parts, f->n_parts));
    assert_same(want->new_values, got.new_values, f->n_elems, "values", seed);
    assert_same(want->slots[0], got.slots[0], f->n_elems, "first slots", seed);
    assert_same(want->slots[1], got.slots[1], f->n_elems, "second slots", seed);
    for (size_t i = 0; i < f->n_parts; i++) {
        cr_assert_eq(parts[i].gradient.left, 0u, "seed %lu: a contribution was not used up", seed->first);
        scattered_free(&scattered_parts[i]);
    }
    outcome_free(&got);
}

Test(update_spans, every_cut_and_instruction_set_gives_the_bits_of_a_plain_loop)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 600; round++) {
        fixture f = fixture_draw(&seed);
        outcome want = plain(&f);
        for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++)
            if (sg_isa_has(isa))
                compare_with_plain(&seed, isa, &f, &want);
        outcome_free(&want);
        fixture_free(&f);
    }
}

/* The contribution `target` lies in one piece, and the new values are written over it. */
static void write_over(const sg_seed *seed, sg_isa isa, const fixture *f, const outcome *want, size_t target)
{
    outcome got = outcome_make(f);
    memcpy(got.new_values, f->gradients[target], f->n_elems * sizeof(float));
    sg_span spans[MAX_PARTS];
    sg_update_part parts[MAX_PARTS];
    for (size_t i = 0; i < f->n_parts; i++) {
        const float *gradient = i == target ? got.new_values : f->gradients[i];
        sg_span_reader reader = sg_span_reader_of_array(&spans[i], gradient, f->n_elems * sizeof(float));
        parts[i] = (sg_update_part){.gradient = reader, .scale = f->scales[i]};
    }
    cr_assert(
        sg_update_apply_as(isa, &f->update, f->n_elems, f->old_values, got.new_values, got.slots, parts, f->n_parts));
    assert_same(want->new_values, got.new_values, f->n_elems, "values", seed);
    assert_same(want->slots[0], got.slots[0], f->n_elems, "first slots", seed);
    assert_same(want->slots[1], got.slots[1], f->n_elems, "second slots", seed);
    outcome_free(&got);
}

Test(update_spans, new_values_may_be_written_over_a_contribution)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 200; round++) {
        fixture f = fixture_draw(&seed);
        outcome want = plain(&f);
        for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++)
            if (sg_isa_has(isa))
                write_over(&seed, isa, &f, &want, sg_seed_below(&seed, f.n_parts));
        outcome_free(&want);
        fixture_free(&f);
    }
}

Test(update_spans, a_pass_takes_no_more_of_a_reader_than_its_elements)
{
    float gradient[] = {1, 2, 3, 4, 5};
    float w[5] = {0};
    sg_update update = {.rule = SG_RULE_SGD, .learning_rate = -1, .count = 1};
    sg_span span;
    sg_update_part part = {.gradient = sg_span_reader_of_array(&span, gradient, sizeof gradient), .scale = 1};
    cr_assert(sg_update_apply(&update, 2, w, w, NULL, &part, 1));
    cr_assert(sg_update_apply(&update, 0, NULL, NULL, NULL, &part, 1));
    cr_assert(sg_update_apply(&update, 3, w + 2, w + 2, NULL, &part, 1));
    cr_assert(memcmp(w, gradient, sizeof w) == 0);
}

/* Several contributions to one slice. */
typedef struct looked_at {
    size_t n_elems, n_parts;
    scattered parts[MAX_PARTS];
    const float *old_values;
    float *new_values;
} looked_at;

static bool apply_looking(looked_at *l, sg_isa isa, sg_update_part *parts)
{
    sg_update update = {.rule = SG_RULE_SGD, .learning_rate = 0.1F, .count = 1};
    for (size_t i = 0; i < l->n_parts; i++) {
        parts[i].gradient = read_all(&l->parts[i]);
        parts[i].scale = 1;
    }
    return sg_update_apply_as(isa, &update, l->n_elems, l->old_values, l->new_values, NULL, parts, l->n_parts);
}

/* Contribution `bad` alone holds a bad number. */
static void expect_found(sg_seed *seed, looked_at *l, sg_isa isa, size_t bad)
{
    sg_update_part parts[MAX_PARTS] = {{.look = false}};
    cr_assert(apply_looking(l, isa, parts), "seed %lu: nobody was to look", seed->first);
    for (size_t i = 0; i < l->n_parts; i++)
        parts[i] = (sg_update_part){.look = i != bad};
    cr_assert(apply_looking(l, isa, parts), "seed %lu: nobody was to look at the bad part", seed->first);
    for (size_t i = 0; i < l->n_parts; i++) {
        cr_assert_eq(parts[i].gradient.left, 0u);
        parts[i] = (sg_update_part){.look = true};
    }
    cr_assert_not(apply_looking(l, isa, parts), "seed %lu: bad part %zu was missed", seed->first, bad);
    for (size_t one = 0; one < l->n_parts; one++) {
        for (size_t i = 0; i < l->n_parts; i++)
            parts[i] = (sg_update_part){.look = i == one};
        cr_assert_eq(apply_looking(l, isa, parts), one != bad, "seed %lu: part %zu", seed->first, one);
    }
}

/* At each stride-th element. */
static void look_everywhere(sg_seed *seed, sg_isa isa, size_t n_elems, size_t n_parts, size_t stride)
{
    static const float bad_ones[] = {NAN, INFINITY, -INFINITY};
    float *values = sg_xcalloc(n_elems, sizeof *values);
    float *old_values = sg_xcalloc(n_elems, sizeof *old_values);
    float *new_values = sg_xcalloc(n_elems, sizeof *new_values);
    for (size_t i = 0; i < n_elems; i++)
        values[i] = 1;
    looked_at l = {.n_elems = n_elems, .n_parts = n_parts, .old_values = old_values, .new_values = new_values};
    for (size_t at = 0; at < n_elems; at += stride) {
        size_t bad = sg_seed_below(seed, n_parts);
        for (size_t i = 0; i < n_parts; i++) {
            values[at] = i == bad ? bad_ones[sg_seed_below(seed, SG_ARRAY_LEN(bad_ones))] : 1;
            l.parts[i] = scatter(seed, values, n_elems, (cut)sg_seed_below(seed, CUT_COUNT));
        }
        values[at] = 1;
        expect_found(seed, &l, isa, bad);
        for (size_t i = 0; i < n_parts; i++) {
            sg_span_reader reader = read_all(&l.parts[i]);
            cr_assert_eq(sg_update_spans_are_finite_as(isa, reader, n_elems), i != bad, "seed %lu", seed->first);
            cr_assert(sg_update_spans_are_finite_as(isa, reader, i == bad ? at : n_elems), "seed %lu", seed->first);
            scattered_free(&l.parts[i]);
        }
    }
    free(values);
    free(old_values);
    free(new_values);
}

Test(update_spans, one_nan_or_infinity_is_found_in_its_contribution_wherever_it_lies)
{
    sg_seed seed = sg_seed_begin();
    for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++) {
        if (!sg_isa_has(isa))
            continue;
        look_everywhere(&seed, isa, 300, 1, 1);
        look_everywhere(&seed, isa, 130, 2, 1);
        look_everywhere(&seed, isa, 40, 5, 1);
        look_everywhere(&seed, isa, 1100, 9, 7);
    }
}

Test(update_spans, a_sum_that_grows_too_large_is_no_fault_of_finite_contributions)
{
    enum { n_elems = 100 };
    sg_seed seed = sg_seed_begin();
    float largest[n_elems], old_values[n_elems] = {0}, new_values[n_elems];
    for (size_t i = 0; i < n_elems; i++)
        largest[i] = i % 2 ? FLT_MAX : -FLT_MAX;
    looked_at l = {.n_elems = n_elems, .n_parts = 2, .old_values = old_values, .new_values = new_values};
    for (size_t i = 0; i < l.n_parts; i++)
        l.parts[i] = scatter(&seed, largest, n_elems, CUT_SMALL);
    for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++) {
        if (!sg_isa_has(isa))
            continue;
        sg_update_part parts[MAX_PARTS] = {{.look = true}, {.look = true}};
        cr_assert(apply_looking(&l, isa, parts));
        cr_assert(isinf(new_values[0]) && isinf(new_values[n_elems - 1]));
        cr_assert(sg_update_spans_are_finite_as(isa, read_all(&l.parts[0]), n_elems));
    }
    for (size_t i = 0; i < l.n_parts; i++)
        scattered_free(&l.parts[i]);
}
