/* tests/kernels/test_update_norms.c - updates in two phases: against the papers' formulas in double, and their sums. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "kernels/update_norms.h"
#include "tests/support/seed.h"

TestSuite(update_norms, .timeout = 240);

#define N 1000u

static float draw(sg_seed *seed)
{
    return ((float)sg_seed_below(seed, 1 << 24) - 0x1p23F) * 0x1p-22F;
}

Test(update_norms, the_sum_of_squares_has_the_same_bits_from_every_instruction_set)
{
    sg_seed seed = sg_seed_begin();
    for (size_t n = 0; n < 300; n++) {
        float x[300];
        double near = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = draw(&seed);
            near += (double)x[i] * (double)x[i];
        }
        const double want = sg_update_squares_as(SG_ISA_PORTABLE, x, n);
        cr_assert_float_eq(want, near, 1e-12 * near + 1e-300, "%zu elements", n);
        for (sg_isa isa = SG_ISA_PORTABLE; isa < SG_ISA_COUNT; isa++) {
            const double got = sg_isa_has(isa) ? sg_update_squares_as(isa, x, n) : want;
            cr_assert_eq(memcmp(&got, &want, sizeof got), 0, "%zu elements", n);
        }
    }
}

/* A variable of two slices, 2 contributions, three steps of one rule. */
typedef struct variable {
    float w[N], gradients[2][N], slots[2][N];
} variable;

#define CUT 592u

static void step(const sg_update *update, variable *v, double others)
{
    static float made[N];
    const size_t begin[] = {0, CUT, N};
    sg_update_squares_of squares[2], sum = {0};
    for (size_t i = 0; i < 2; i++) {
        const size_t at = begin[i], n = begin[i + 1] - at;
        sg_span spans[2];
        sg_update_part parts[2];
        for (size_t k = 0; k < 2; k++)
            parts[k] = (sg_update_part){.gradient =
                                            sg_span_reader_of_array(&spans[k], v->gradients[k] + at, n * sizeof(float)),
                                        .scale = k == 0 ? 0.25F : 0.75F};
        cr_assert(sg_update_first_phase(update, n, v->w + at, made + at,
                                        (float *[]){v->slots[0] + at, v->slots[1] + at}, parts, 2, &squares[i]));
        sum.values += squares[i].values;
        sum.made += squares[i].made;
    }
    for (size_t i = 0; i < 2; i++) {
        const size_t at = begin[i], n = begin[i + 1] - at;
        sg_update_second_phase(update, &sum, sum.made + others, n, v->w + at, made + at, v->w + at,
                               (float *[]){v->slots[0] + at, v->slots[1] + at});
    }
}

/* The same, all in double, from the papers. */
typedef struct reference {
    double w[N], first[N], second[N];
} reference;

static double norm(const double *x)
{
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void step_in_double(const sg_update *u, reference *r, const variable *v, double others)
{
    static double g[N], direction[N];
    const double rate = u->learning_rate, decay = u->exempt ? 0 : (double)u->weight_decay, t = (double)u->count;
    for (size_t i = 0; i < N; i++)
        g[i] = 0.25 * (double)v->gradients[0][i] + 0.75 * (double)v->gradients[1][i];
    double factor = 1;
    if (u->clip > 0)
        factor = fmin(1, (double)u->clip / (sqrt(norm(g) * norm(g) + others) + 1e-6));
    for (size_t i = 0; i < N; i++)
        g[i] *= factor;
    if (u->rule == SG_RULE_SGD) {
        for (size_t i = 0; i < N; i++)
            r->w[i] -= rate * (g[i] + (double)u->weight_decay * r->w[i]);
    } else if (u->rule == SG_RULE_LARS) {
        const double trust = u->exempt ? 1 : (double)u->trust * norm(r->w) / (norm(g) + decay * norm(r->w));
        for (size_t i = 0; i < N; i++) {
            r->first[i] = (double)u->momentum * r->first[i] + rate * trust * (g[i] + decay * r->w[i]);
            r->w[i] -= r->first[i];
        }
    } else {
        const double beta1 = u->beta1, beta2 = u->beta2;
        for (size_t i = 0; i < N; i++) {
            r->first[i] = beta1 * r->first[i] + (1 - beta1) * g[i];
            r->second[i] = beta2 * r->second[i] + (1 - beta2) * g[i] * g[i];
            direction[i] =
                r->first[i] / (1 - pow(beta1, t)) / (sqrt(r->second[i] / (1 - pow(beta2, t))) + (double)u->epsilon) +
                decay * r->w[i];
        }
        const double ratio = u->exempt ? 1 : norm(r->w) / norm(direction);
        for (size_t i = 0; i < N; i++)
            r->w[i] -= rate * ratio * direction[i];
    }
}

static void compare(sg_update update, double others)
{
    static variable v;
    static reference r;
    sg_seed seed = sg_seed_begin();
    memset(&v, 0, sizeof v);
    memset(&r, 0, sizeof r);
    for (size_t i = 0; i < N; i++)
        r.w[i] = v.w[i] = draw(&seed);
    for (update.count = 1; update.count <= 3; update.count++) {
        for (size_t i = 0; i < 2 * N; i++)
            v.gradients[i / N][i % N] = draw(&seed);
        step(&update, &v, others);
        step_in_double(&update, &r, &v, others);
        for (size_t i = 0; i < N; i++)
            cr_assert_float_eq(v.w[i], r.w[i], 2e-6, "rule %d, step %d, element %zu: %.9g, wanted %.9g",
                               (int)update.rule, (int)update.count, i, (double)v.w[i], r.w[i]);
    }
}

static const sg_update usual = {.learning_rate = 0.1F,
                                .weight_decay = 0.01F,
                                .momentum = 0.9F,
                                .beta1 = 0.9F,
                                .beta2 = 0.99F,
                                .epsilon = 1e-6F,
                                .trust = 0.02F};

static sg_update with(sg_rule rule, float clip, bool exempt)
{
    sg_update update = usual;
    update.rule = rule;
    update.clip = clip;
    update.exempt = exempt;
    return update;
}

Test(update_norms, each_is_what_its_paper_says)
{
    compare(with(SG_RULE_SGD, 5, false), 100); /* the norm is above it */
    compare(with(SG_RULE_SGD, 5, true), 1e6);
    compare(with(SG_RULE_SGD, 1000, false), 0);
    compare(with(SG_RULE_LARS, 0, false), 0);
    compare(with(SG_RULE_LARS, 0, true), 0);
    compare(with(SG_RULE_LARS, 5, false), 100);
    compare(with(SG_RULE_LAMB, 0, false), 0);
    compare(with(SG_RULE_LAMB, 0, true), 0);
}

/* Only what is larger than the bound is scaled; what is not has the bits of one phase. */
Test(update_norms, a_gradient_within_the_bound_is_not_touched)
{
    static variable v;
    static float once[N];
    sg_seed seed = sg_seed_begin();
    for (size_t i = 0; i < N; i++) {
        v.w[i] = draw(&seed);
        v.gradients[0][i] = draw(&seed);
        v.gradients[1][i] = draw(&seed);
    }
    sg_update update = with(SG_RULE_SGD, 1e5F, false);
    update.count = 1;
    sg_span spans[2];
    sg_update_part parts[2];
    for (size_t k = 0; k < 2; k++)
        parts[k] = (sg_update_part){.gradient = sg_span_reader_of_array(&spans[k], v.gradients[k], N * sizeof(float)),
                                    .scale = k == 0 ? 0.25F : 0.75F};
    sg_update_apply(&update, N, v.w, once, NULL, parts, 2);
    step(&update, &v, 0);
    cr_assert_arr_eq(v.w, once, sizeof once);
}

static float one_element(sg_rule rule, float w, float g)
{
    float made, first = 0, second = 0;
    sg_update update = with(rule, 0, false);
    update.count = 1;
    update.weight_decay = 0;
    sg_span span;
    sg_update_part part = {.gradient = sg_span_reader_of_array(&span, &g, sizeof g), .scale = 1};
    sg_update_squares_of squares;
    cr_assert(sg_update_first_phase(&update, 1, &w, &made, (float *[]){&first, &second}, &part, 1, &squares));
    sg_update_second_phase(&update, &squares, squares.made, 1, &w, &made, &made, (float *[]){&first, &second});
    return made;
}

Test(update_norms, where_a_norm_is_zero_the_rate_is_not_scaled)
{
    cr_assert_float_eq(one_element(SG_RULE_LARS, 0, 2), -0.2F, 1e-7);
    cr_assert_eq(one_element(SG_RULE_LARS, 3, 0), 3);
    cr_assert_float_eq(one_element(SG_RULE_LAMB, 0, 2), -0.1F, 1e-6);
    cr_assert_eq(one_element(SG_RULE_LAMB, 3, 0), 3);
}

Test(update_norms, what_is_not_finite_is_found_by_the_first_phase_of_a_rule_without_slots)
{
    float w = 1, made, g[] = {NAN, INFINITY};
    sg_update update = with(SG_RULE_SGD, 1, false);
    update.count = 1;
    for (size_t i = 0; i < 2; i++) {
        sg_span span;
        sg_update_part part = {
            .gradient = sg_span_reader_of_array(&span, &g[i], sizeof g[i]), .scale = 1, .look = true};
        sg_update_squares_of squares;
        cr_assert_not(sg_update_first_phase(&update, 1, &w, &made, NULL, &part, 1, &squares));
    }
}

Test(update_norms, only_clipping_lars_and_lamb_take_norms)
{
    for (sg_rule rule = 0; rule < SG_N_RULES; rule++) {
        const sg_update none = {.rule = rule}, clipped = {.rule = rule, .clip = 1};
        const bool scales = rule == SG_RULE_LARS || rule == SG_RULE_LAMB;
        cr_assert_eq(sg_update_takes_norms(&none), scales);
        cr_assert_eq(sg_update_takes_norms(&clipped), rule != SG_RULE_AVERAGE);
        cr_assert_eq(sg_update_scales_variables(rule), scales);
    }
}
