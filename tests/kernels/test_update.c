/* tests/kernels/test_update.c - the update rules: known answers, a bound against double precision, and the same bits
 * from every instruction set and every cut. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "kernels/update.h"
#include "worker/nn/initializer.h"

TestSuite(update, .timeout = 240);

#define MAX_PARTS 3
#define N_GOLDEN  3

static sg_update update_of(sg_rule rule, float weight_decay)
{
    return (sg_update){.rule = rule,
                       .learning_rate = 0.1F,
                       .weight_decay = weight_decay,
                       .momentum = 0.9F,
                       .beta1 = 0.9F,
                       .beta2 = 0.999F,
                       .epsilon = 1e-8F,
                       .count = 1,
                       .members = 3};
}

/* Computed in double precision by a Python script after torch.optim's sources, weight_decay 0.01. */
static const float golden_gradients[3][N_GOLDEN] = {{0.5F, -1, 0.25F}, {0.1F, 0.2F, -0.3F}, {-0.4F, 0.6F, 0}};
static const struct {
    sg_rule rule;
    double values[3][N_GOLDEN];
} goldens[] = {
    {SG_RULE_SGD, {{0.949, -0.3995, 1.973}, {0.938051, -0.4191005, 2.001027}, {0.977112949, -0.4786814, 1.999025973}}},
    {SG_RULE_MOMENTUM,
     {{0.949, -0.3995, 1.973}, {0.892151, -0.3286505, 1.976727}, {0.880094749, -0.3245573, 1.978104573}}},
    {SG_RULE_NESTEROV,
     {{0.9031, -0.30905, 1.9487}, {0.84107411, -0.265057805, 1.98012747}, {0.869465558, -0.321239365, 1.979403781}}},
    {SG_RULE_ADAM,
     {{0.900000002, -0.400000001, 1.900000004},
      {0.818915174, -0.348485448, 1.907258013},
      {0.807215805, -0.346266347, 1.909736674}}},
    {SG_RULE_ADAMW,
     {{0.899000002, -0.399500001, 1.898000004},
      {0.817796906, -0.347997894, 1.910396477},
      {0.807609169, -0.346029027, 1.919535749}}},
    {SG_RULE_ADAGRAD,
     {{0.900000002, -0.400000001, 1.900000004},
      {0.879099476, -0.419141858, 1.972107959},
      {0.939106398, -0.469435322, 1.967053762}}},
    {SG_RULE_RMSPROP, /* of beta2 as a float: without a correction of the bias it matters that 1 - beta2 is not 0.001 */
     {{-2.162296056, 2.662297022, -1.162294313},
      {-2.642874797, 1.966348258, 1.228208413},
      {-0.627182537, 0.335246836, 1.133985555}}},
};

Test(update, three_steps_of_each_rule_give_the_values_that_pytorch_gives)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(goldens); i++) {
        float w[N_GOLDEN] = {1, -0.5F, 2};
        float first[N_GOLDEN] = {0};
        float second[N_GOLDEN] = {0};
        sg_update update = update_of(goldens[i].rule, 0.01F);
        for (size_t step = 0; step < 3; step++) {
            update.count = step + 1;
            sg_span span;
            sg_update_part part = {
                .gradient = sg_span_reader_of_array(&span, golden_gradients[step], sizeof golden_gradients[step]),
                .scale = 1};
            sg_update_apply(&update, N_GOLDEN, w, w, (float *[]){first, second}, &part, 1);
            for (size_t e = 0; e < N_GOLDEN; e++)
                cr_assert_float_eq(w[e], goldens[i].values[step][e], 1e-6, "rule %zu, step %zu, element %zu: %.9f", i,
                                   step, e, (double)w[e]);
        }
    }
}

/* Of the values 2, 6 and 10 with the weights 1, 2 and 1. */
static float average(float old, uint64_t members, size_t first, size_t n)
{
    static const float values[] = {2, 6, 10};
    static const uint64_t weights[] = {1, 2, 1};
    float scales[3], w = old;
    sg_span spans[3];
    sg_update_part parts[3];
    cr_assert(sg_update_scales(weights + first, n, scales));
    for (size_t i = 0; i < n; i++)
        parts[i] = (sg_update_part){.gradient = sg_span_reader_of_array(&spans[i], &values[first + i], sizeof(float)),
                                    .scale = scales[i]};
    const sg_update update = {
        .rule = SG_RULE_AVERAGE, .learning_rate = 0.1F, .weight_decay = 0.1F, .count = 1, .members = members};
    cr_assert(sg_update_apply(&update, 1, &w, &w, NULL, parts, n));
    return w;
}

Test(update, average_makes_the_mean_of_all_members_the_value_and_goes_to_that_of_one_by_a_share)
{
    cr_assert_eq(average(1, 0, 0, 3), 6.0F);
    cr_assert_eq(average(-100, 1, 0, 3), 6.0F, "what was there before has no part in it");
    cr_assert_eq(average(INFINITY, 1, 1, 1), 6.0F);
    cr_assert_eq(average(1, 4, 1, 1), 2.25F, "a quarter of the way from 1 to 6");
    cr_assert_eq(average(6, 4, 1, 1), 6.0F);
}

/* A variable with slots and contributions, filled with noise. */
typedef struct fixture {
    size_t n_elems;
    float *values, *slots[SG_UPDATE_MAX_SLOTS], *gradients[MAX_PARTS];
    sg_update_part parts[MAX_PARTS];
    size_t n_parts;
} fixture;

static float *noise(const char *name, size_t n, float limit)
{
    float *x = sg_xcalloc(n + 1, sizeof *x);
    sg_initializer_uniform(7, name, limit, 0, n, x);
    return x;
}

static fixture fixture_make(size_t n_elems, size_t n_parts)
{
    fixture f = {.n_elems = n_elems, .n_parts = n_parts, .values = noise("values", n_elems, 2)};
    f.slots[0] = noise("slot 0", n_elems, 0.5F);
    f.slots[1] = noise("slot 1", n_elems, 0.5F);
    for (size_t i = 0; i < n_elems; i++) { /* they may be squares */
        f.slots[0][i] = fabsf(f.slots[0][i]);
        f.slots[1][i] = fabsf(f.slots[1][i]);
    }
    static const char *const names[MAX_PARTS] = {"part 0", "part 1", "part 2"};
    static const float scales[MAX_PARTS] = {0.5F, 0.3F, 0.2F};
    for (size_t i = 0; i < n_parts; i++) {
        f.gradients[i] = noise(names[i], n_elems, 1);
        f.parts[i] = (sg_update_part){.scale = n_parts == 1 ? 1 : scales[i]};
    }
    return f;
}

static void fixture_free(fixture *f)
{
    free(f->values);
    free(f->slots[0]);
    free(f->slots[1]);
    for (size_t i = 0; i < MAX_PARTS; i++)
        free(f->gradients[i]);
}

/* Applies the rule to elements [begin, end) in place. */
static void apply_range(sg_isa isa, const sg_update *update, fixture *f, size_t begin, size_t end)
{
    sg_update_part parts[MAX_PARTS];
    sg_span spans[MAX_PARTS];
    for (size_t i = 0; i < f->n_parts; i++) {
        size_t n_bytes = (end - begin) * sizeof(float);
        parts[i] = (sg_update_part){.gradient = sg_span_reader_of_array(&spans[i], f->gradients[i] + begin, n_bytes),
                                    .scale = f->parts[i].scale};
    }
    float *slots[] = {f->slots[0] + begin, f->slots[1] + begin};
    sg_update_apply_as(isa, update, end - begin, f->values + begin, f->values + begin, slots, parts, f->n_parts);
}

static void assert_same_bits(const fixture *a, const fixture *b, const char *what)
{
    size_t n_bytes = a->n_elems * sizeof(float);
    cr_assert(memcmp(a->values, b->values, n_bytes) == 0, "values differ: %s", what);
    cr_assert(memcmp(a->slots[0], b->slots[0], n_bytes) == 0, "first slots differ: %s", what);
    cr_assert(memcmp(a->slots[1], b->slots[1], n_bytes) == 0, "second slots differ: %s", what);
}

static void compare_variants(const sg_update *update, size_t n_elems, size_t n_parts)
{
    fixture portable = fixture_make(n_elems, n_parts);
    apply_range(SG_ISA_PORTABLE, update, &portable, 0, n_elems);
    for (sg_isa isa = SG_ISA_AVX2; isa < SG_ISA_COUNT; isa++) {
        if (!sg_isa_has(isa)) {
            cr_log_warn("SKIP: this machine lacks instruction set %d", (int)isa);
            continue;
        }
        fixture other = fixture_make(n_elems, n_parts);
        apply_range(isa, update, &other, 0, n_elems);
        assert_same_bits(&portable, &other, "portable and another instruction set");
        fixture_free(&other);
    }
    fixture_free(&portable);
}

Test(update, every_instruction_set_gives_the_same_bits)
{
    static const size_t sizes[] = {0, 1, 7, 1023, 1024, 1025, 30011};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        for (sg_rule r = 0; r < SG_N_RULES; r++) {
            sg_update update = update_of(r, r % 2 ? 0.01F : 0);
            update.count = 3;
            compare_variants(&update, sizes[i], 1);
            update.weight_decay = 0.01F - update.weight_decay;
            compare_variants(&update, sizes[i], MAX_PARTS);
        }
    }
}

Test(update, a_variable_that_is_cut_otherwise_gets_the_same_bits)
{
    enum { n_elems = 10007 };
    static const size_t widths[] = {1, 16, 1000, 1024, 4097};
    for (sg_rule r = 0; r < SG_N_RULES; r++) {
        sg_update update = update_of(r, 0.01F);
        fixture whole = fixture_make(n_elems, 2);
        apply_range(sg_isa_best(), &update, &whole, 0, n_elems);
        for (size_t i = 0; i < SG_ARRAY_LEN(widths); i++) {
            fixture cut = fixture_make(n_elems, 2);
            for (size_t begin = 0; begin < n_elems; begin += widths[i])
                apply_range(sg_isa_best(), &update, &cut, begin,
                            begin + widths[i] < n_elems ? begin + widths[i] : n_elems);
            assert_same_bits(&whole, &cut, "whole and cut");
            fixture_free(&cut);
        }
        fixture_free(&whole);
    }
}

Test(update, values_may_be_written_beside_the_old_ones_or_over_them)
{
    fixture in_place = fixture_make(3000, 2);
    fixture beside = fixture_make(3000, 2);
    float *new_values = sg_xcalloc(3000, sizeof *new_values);
    float *old_values = noise("values", 3000, 2);
    sg_update update = update_of(SG_RULE_ADAM, 0.01F);
    apply_range(sg_isa_best(), &update, &in_place, 0, 3000);
    sg_span spans[2];
    for (size_t i = 0; i < 2; i++)
        beside.parts[i].gradient = sg_span_reader_of_array(&spans[i], beside.gradients[i], 3000 * sizeof(float));
    sg_update_apply(&update, 3000, beside.values, new_values, beside.slots, beside.parts, beside.n_parts);
    cr_assert(memcmp(beside.values, old_values, 3000 * sizeof(float)) == 0, "the old values were written to");
    cr_assert(memcmp(in_place.values, new_values, 3000 * sizeof(float)) == 0);
    free(new_values);
    free(old_values);
    fixture_free(&in_place);
    fixture_free(&beside);
}

/* The rule in double precision for one element, straight from the table of formulas. */
static double expected(const sg_update *u, double w, double g, double slot0, double slot1)
{
    double gradient = g;
    if (u->rule == SG_RULE_ADAMW)
        w *= 1 - (double)u->learning_rate * (double)u->weight_decay;
    else if (u->rule != SG_RULE_AVERAGE)
        g += (double)u->weight_decay * w;
    double velocity = (double)u->momentum * slot0 + g;
    double beta1 = u->beta1;
    double beta2 = u->beta2;
    double first = beta1 * slot0 + (1 - beta1) * g;
    double second = beta2 * slot1 + (1 - beta2) * g * g;
    double t = (double)u->count;
    switch (u->rule) {
    case SG_RULE_SGD:
        return w - (double)u->learning_rate * g;
    case SG_RULE_MOMENTUM:
        return w - (double)u->learning_rate * velocity;
    case SG_RULE_NESTEROV:
        return w - (double)u->learning_rate * (g + (double)u->momentum * velocity);
    case SG_RULE_ADAGRAD:
        return w - (double)u->learning_rate * g / (sqrt(slot0 + g * g) + (double)u->epsilon);
    case SG_RULE_RMSPROP:
        return w - (double)u->learning_rate * g / (sqrt(beta2 * slot0 + (1 - beta2) * g * g) + (double)u->epsilon);
    case SG_RULE_ADAM:
    case SG_RULE_ADAMW:
        return w - (double)u->learning_rate / (1 - pow(beta1, t)) * first /
                       (sqrt(second) / sqrt(1 - pow(beta2, t)) + (double)u->epsilon);
    case SG_RULE_AVERAGE:
        return w + (g - w) / (double)u->members;
    case SG_RULE_LARS:
        return w - ((double)u->momentum * slot0 + (double)u->learning_rate * g);
    case SG_RULE_LAMB: /* the direction; the decay is of the value */
        first = beta1 * slot0 + (1 - beta1) * gradient;
        second = beta2 * slot1 + (1 - beta2) * gradient * gradient;
        return first / (1 - pow(beta1, t)) / (sqrt(second) / sqrt(1 - pow(beta2, t)) + (double)u->epsilon) +
               (double)u->weight_decay * w;
    }
    return NAN;
}

/* Bound: 4 units in the last place of the value, plus 1e-6 of the distance it moved. */
Test(update, each_rule_stays_near_double_precision)
{
    enum { n_elems = 5000 };
    for (sg_rule r = 0; r < SG_N_RULES; r++) {
        sg_update update = update_of(r, 0.01F);
        update.count = 5;
        fixture f = fixture_make(n_elems, MAX_PARTS);
        fixture before = fixture_make(n_elems, MAX_PARTS);
        apply_range(sg_isa_best(), &update, &f, 0, n_elems);
        for (size_t i = 0; i < n_elems; i++) {
            double g = 0;
            for (size_t part = 0; part < f.n_parts; part++)
                g += (double)f.parts[part].scale * (double)f.gradients[part][i];
            double w = before.values[i];
            double want = expected(&update, w, g, before.slots[0][i], before.slots[1][i]);
            double bound = 4 * 0x1p-24 * fmax(fabs(w), fabs(want)) + 1e-6 * fabs(want - w) + 1e-8;
            cr_assert(fabs(f.values[i] - want) <= bound, "rule %d, element %zu: %.9g, wanted %.9g", (int)r, i,
                      (double)f.values[i], want);
        }
        fixture_free(&f);
        fixture_free(&before);
    }
}

Test(update, scales_are_shares_of_the_examples)
{
    float scales[3];
    cr_assert(sg_update_scales((uint64_t[]){43, 0, 85}, 3, scales));
    cr_assert(scales[0] == (float)(43.0 / 128.0) && scales[1] == 0 && scales[2] == (float)(85.0 / 128.0));
    cr_assert(sg_update_scales((uint64_t[]){UINT64_MAX, UINT64_MAX}, 2, scales), "the sum must not wrap around");
    cr_assert(scales[0] == 0.5F && scales[1] == 0.5F);
    cr_assert_not(sg_update_scales((uint64_t[]){0, 0}, 2, scales));
    cr_assert(scales[0] == 0 && scales[1] == 0);
    cr_assert_not(sg_update_scales(NULL, 0, NULL));
}

Test(update, a_rule_keeps_as_many_slots_as_it_needs)
{
    cr_assert(sg_update_slots(SG_RULE_SGD) == 0);
    cr_assert(sg_update_slots(SG_RULE_MOMENTUM) == 1);
    cr_assert(sg_update_slots(SG_RULE_NESTEROV) == 1);
    cr_assert(sg_update_slots(SG_RULE_ADAGRAD) == 1);
    cr_assert(sg_update_slots(SG_RULE_RMSPROP) == 1);
    cr_assert(sg_update_slots(SG_RULE_ADAM) == 2);
    cr_assert(sg_update_slots(SG_RULE_ADAMW) == 2);
    cr_assert(sg_update_slots(SG_RULE_AVERAGE) == 0);
}

static void find_at(sg_isa isa, size_t n, size_t at, float bad)
{
    float *from = noise("from", n, 3);
    float *to = sg_xcalloc(n, sizeof *to);
    from[at] = bad;
    cr_assert_not(sg_update_copy_is_finite_as(isa, from, to, n), "%f at %zu of %zu was missed", (double)bad, at, n);
    cr_assert_not(sg_update_copy_is_finite_as(isa, from, NULL, n), "%f at %zu of %zu was missed", (double)bad, at, n);
    cr_assert(memcmp(from, to, n * sizeof(float)) == 0, "the copy differs");
    from[at] = 3.4028234e38F; /* the largest finite one */
    cr_assert(sg_update_copy_is_finite_as(isa, from, to, n));
    cr_assert(memcmp(from, to, n * sizeof(float)) == 0, "the copy differs");
    free(from);
    free(to);
}

Test(update, one_nan_or_infinity_is_found_wherever_it_is)
{
    static const size_t sizes[] = {1, 7, 1024, 2050};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++) {
        for (size_t i = 0; sg_isa_has(isa) && i < SG_ARRAY_LEN(sizes); i++) {
            for (size_t b = 0; b < SG_ARRAY_LEN(bad); b++) {
                find_at(isa, sizes[i], 0, bad[b]);
                find_at(isa, sizes[i], sizes[i] / 2, bad[b]);
                find_at(isa, sizes[i], sizes[i] - 1, bad[b]);
            }
        }
    }
    cr_assert(sg_update_copy_is_finite(NULL, NULL, 0));
}
