#include "worker/cli/bench/variables.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "common/status.h"

TestSuite(bench_variables, .timeout = 60);

static sg_bench_variables make(uint64_t total_bytes, uint64_t variable_bytes, uint32_t worker, uint32_t n_workers)
{
    sg_bench_variables model;
    sg_bench_shape shape = {.total_bytes = total_bytes, .variable_bytes = variable_bytes};
    cr_assert_eq(sg_bench_variables_init(&model, &shape, worker, n_workers, NULL), SG_OK);
    return model;
}

/* What a cluster does in one step, by the definition: each worker's model holds its own gradients. */
static void step(sg_bench_variables *models, uint32_t n_workers, float learning_rate)
{
    uint64_t weights = 0;
    for (uint32_t w = 0; w < n_workers; w++)
        weights += models[w].weight;
    for (size_t i = 0; i < models[0].n_elems; i++) {
        float sum = (float)((double)models[0].weight / (double)weights) * models[0].gradients[i];
        for (uint32_t w = 1; w < n_workers; w++)
            sum = fmaf((float)((double)models[w].weight / (double)weights), models[w].gradients[i], sum);
        for (uint32_t w = 0; w < n_workers; w++)
            models[w].values[i] = fmaf(-learning_rate, sum, models[w].values[i]);
    }
    for (uint32_t w = 0; w < n_workers; w++)
        sg_bench_variables_count_step(&models[w], learning_rate);
}

Test(bench_variables, variables_cover_the_model_and_the_last_one_may_be_smaller)
{
    sg_bench_variables model = make(1000, 300, 0, 1);
    cr_assert_eq(model.n_variables, 4);
    size_t n = 0;
    for (size_t i = 0; i < model.n_variables; i++) {
        cr_assert_eq(model.indices[i], i);
        cr_assert_eq(model.variables[i].value, model.values + n);
        cr_assert_eq(model.variables[i].gradient, model.gradients + n);
        n += model.variables[i].shape[0];
    }
    cr_assert_eq(n, 250);
    cr_assert_eq(model.variables[3].shape[0], 25);
    sg_bench_variables_deinit(&model);
}

Test(bench_variables, values_that_the_rule_made_are_right_for_one_worker_and_for_three)
{
    for (uint32_t n_workers = 1; n_workers <= 3; n_workers += 2) {
        sg_bench_variables models[3];
        for (uint32_t w = 0; w < n_workers; w++)
            models[w] = make(4 * 70000, 4 * 1000, w, n_workers);
        for (uint32_t w = 0; w < n_workers; w++)
            cr_assert_eq(sg_bench_variables_check(&models[w], NULL), SG_OK, "before the first step");
        step(models, n_workers, 0.01f);
        step(models, n_workers, 0.01f);
        step(models, n_workers, 0.5f);
        sg_error err;
        for (uint32_t w = 0; w < n_workers; w++)
            cr_assert_eq(sg_bench_variables_check(&models[w], &err), SG_OK, "%s", err.message);
        for (uint32_t w = 0; w < n_workers; w++)
            sg_bench_variables_deinit(&models[w]);
    }
}

Test(bench_variables, a_step_that_did_not_come_is_found)
{
    sg_bench_variables model = make(400, 400, 0, 1);
    sg_bench_variables_count_step(&model, 0.01f);
    cr_assert_eq(sg_bench_variables_check(&model, NULL), SG_INTERNAL);
    sg_bench_variables_deinit(&model);
}

Test(bench_variables, one_element_that_is_off_by_one_bit_is_found_and_named)
{
    sg_bench_variables model = make(4 * 100000, 4 * 100000, 0, 1);
    sg_error err;
    model.values[99999] = nextafterf(model.values[99999], 1);
    cr_assert_eq(sg_bench_variables_check(&model, &err), SG_INTERNAL);
    cr_assert_not_null(strstr(err.message, "element 99999 of 100000 is"), "%s", err.message);
    sg_bench_variables_deinit(&model);
}

Test(bench_variables, slices_that_changed_places_are_found)
{
    enum { SLICE = 262144 }; /* elements of the default slice */
    sg_bench_variables model = make((uint64_t)4 * 4 * SLICE, (uint64_t)4 * 4 * SLICE, 0, 1);
    for (size_t i = 0; i < SLICE; i++) {
        float value = model.values[i];
        model.values[i] = model.values[3 * SLICE + i];
        model.values[3 * SLICE + i] = value;
    }
    cr_assert_eq(sg_bench_variables_check(&model, NULL), SG_INTERNAL);
    sg_bench_variables_deinit(&model);
}

Test(bench_variables, workers_differ_in_gradients_and_weights_and_agree_in_values)
{
    sg_bench_variables a = make(400, 400, 0, 2), b = make(400, 400, 1, 2);
    cr_assert_neq(a.weight, b.weight);
    for (size_t i = 0; i < 100; i++) {
        cr_assert_neq(a.gradients[i], b.gradients[i]);
        cr_assert_eq(a.values[i], b.values[i]);
    }
    sg_bench_variables_deinit(&a);
    sg_bench_variables_deinit(&b);
}
