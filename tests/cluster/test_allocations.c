/* The steady state of a whole cluster, client and ps in one process, allocates nothing of our own. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "cluster.h"
#include "common/status.h"
#include "tests/support/allocations.h"

TestSuite(allocations, .timeout = 60);

enum { N_WARM = 300, N_STEPS = 200 };

typedef struct model {
    size_t n_variables;
    sg_variable *variables;
} model;

static model model_make(size_t n_variables, uint64_t n_elems)
{
    model made = {.n_variables = n_variables, .variables = sg_xcalloc(n_variables, sizeof(sg_variable))};
    for (size_t i = 0; i < n_variables; i++)
        made.variables[i] = (sg_variable){.name = sg_xprintf("variable %zu", i),
                                          .rank = 1,
                                          .shape = {n_elems},
                                          .value = sg_xcalloc(n_elems, sizeof(float)),
                                          .gradient = sg_xcalloc(n_elems, sizeof(float))};
    return made;
}

static void model_free(model *m)
{
    for (size_t i = 0; i < m->n_variables; i++) {
        free((char *)m->variables[i].name);
        free(m->variables[i].value);
        free(m->variables[i].gradient);
    }
    free(m->variables);
}

static void step_once(sg_client *client)
{
    sg_step step = {0};
    sg_error err;
    SG_ASSERT(sg_client_begin_step(client, &step, &err) == SG_OK);
    step.examples = 1;
    SG_ASSERT(sg_client_end_step(client, &step, &err) == SG_OK);
}

/* Heartbeats and leases, which go on beside the steps, are so rare here that none falls into the test. */
static void check_steady_state(model *m, const char *slice_bytes, const char *message_bytes)
{
    const char *settings[] = {"workers=1", slice_bytes, message_bytes, "lease_ms=3600000", NULL};
    char report[8192];
    cluster c;
    sg_error err;
    cluster_start(&c, 1, settings);
    sg_client *client = cluster_open(&c, 0);
    cr_assert_eq(sg_client_declare(client, m->variables, m->n_variables, &err), SG_OK, "%s", err.message);
    for (int i = 0; i < N_WARM; i++)
        step_once(client);
    sg_allocations_begin();
    for (int i = 0; i < N_STEPS; i++)
        step_once(client);
    size_t n = sg_allocations_end(report, sizeof(report));
    /* Now and then more is under way at once than ever before, and a pool grows. */
    cr_expect_lt(n, N_STEPS / 10, "%zu allocations in %d steps:\n%s", n, N_STEPS, report);
    sg_client_close(client);
    cluster_stop(&c);
}

Test(allocations, a_step_of_one_small_variable_allocates_nothing)
{
    model m = model_make(1, 1024);
    check_steady_state(&m, "slice_bytes=1048576", "message_bytes=1048576");
    model_free(&m);
}

Test(allocations, a_step_of_many_variables_in_several_messages_allocates_nothing)
{
    model m = model_make(40, 10000);
    check_steady_state(&m, "slice_bytes=16384", "message_bytes=131072");
    model_free(&m);
}
