/* A convolutional network goes through a cluster as a perceptron does. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "tests/train/cluster.h"
#include "tests/train/fixture.h"
#include "worker/train/local.h"

TestSuite(lenet, .timeout = 120);

static void train(const job *j, uint32_t n_ps, uint32_t n_workers, cluster_result *result)
{
    char run_dir[96];
    snprintf(run_dir, sizeof(run_dir), "%s/run", j->folder);
    cluster_spec spec = {.config_path = j->path,
                         .set = (const char *const[]){"model.name=lenet", NULL},
                         .run_dir = run_dir,
                         .n_ps = n_ps,
                         .n_workers = n_workers};
    cluster_train(&spec, result);
}

#define LOW_RATE "slice_bytes: 4096\nupdate: {rule: sgd, learning_rate: 0.002}\n"

Test(lenet, one_worker_gives_the_parameters_of_training_in_one_process_bit_for_bit)
{
    job j;
    job_init(&j, LOW_RATE, (const char *const[]){"model.name=lenet", NULL});
    sg_workload *w = job_workload(&j);
    sg_summary local;
    cr_assert_eq(sg_local_run(&(sg_local_options){.workload = w}, &local, NULL), SG_OK);
    sg_workload_destroy(w);
    cluster_result result;
    train(&j, 2, 1, &result);
    cr_assert_str_eq(result.summary.parameters_sha256, local.parameters_sha256);
    cr_assert_str_neq(result.summary.parameters_sha256, local.initial_parameters_sha256);
    cluster_result_deinit(&result);
    job_deinit(&j);
}

Test(lenet, two_workers_equal_one_with_both_their_examples)
{
    job j;
    job_init(&j, LOW_RATE, (const char *const[]){"model.name=lenet", NULL});
    cluster_result one, two;
    train(&j, 1, 1, &one);
    train(&j, 2, 2, &two);
    for (size_t v = 0; v < one.start->n_variables; v++) {
        const sg_variable *start = &one.start->variables[v];
        double difference = 0, way = 0;
        for (size_t i = 0; i < sg_workload_n_elems(start); i++) {
            const double a = one.model->variables[v].value[i], b = two.model->variables[v].value[i];
            difference += (a - b) * (a - b);
            way += (a - start->value[i]) * (a - start->value[i]);
        }
        /* Rounding alone is below 1e-5; an input of a relu or two of a window that change places may cost 1e-3. */
        cr_assert(way > 0 && sqrt(difference / way) < 2e-2, "%s: %g", start->name, sqrt(difference / way));
    }
    cluster_result_deinit(&one);
    cluster_result_deinit(&two);
    job_deinit(&j);
}
